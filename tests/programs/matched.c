/* Messages matched by MPI_Mprobe and received into noncontiguous data.
 *
 *   matched
 *
 * Rank 0 sends vectors of several lengths, eager and rendezvous, and one int less than the receive
 * has room for; rank 1 receives each by MPI_Mrecv and by MPI_Imrecv, whose request ends in several
 * ways, and checks every byte, including gaps, and the status. Prints `matched ok`.
 *
 * With Open MPI the preloaded library allocates memory for such messages: if there is none, for a
 * message or for the missing part of a short one, the receive ends with an error.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { GAP = -1 };
enum way { MRECV, WAIT, TEST, WAITALL, LOOK, FREE, WAYS };

/* The number of errors in `count` pairs of a received int and a gap that must stay unchanged. */
static long wrong(const int *ints, int count, int sent)
{
    long n = 0;
    for (int i = 0; i < count; i++)
        n += (ints[2 * i] != (i < sent ? i : GAP)) + (ints[2 * i + 1] != GAP);
    return n;
}

/* Returns whether a status is wrong for a message of `sent` ints. */
static int is_wrong(MPI_Status *status, int tag, MPI_Datatype of, int room, int sent)
{
    int whole, ints;
    MPI_Get_count(status, of, &whole);
    MPI_Get_elements(status, of, &ints);
    return status->MPI_SOURCE != 0 || status->MPI_TAG != tag || ints != sent
           || whole != (sent == room ? 1 : sent ? MPI_UNDEFINED : 0);
}

/* Receives a matched message; returns the number of errors. */
static int receive(enum way way, int *ints, MPI_Datatype vector, int tag, int room, int sent)
{
    MPI_Message message;
    MPI_Request request[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status[2];
    int over = 0, bad = 0;
    MPI_Mprobe(0, tag, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    if (way == MRECV)
        MPI_Mrecv(ints, 1, vector, &message, status);
    else
        MPI_Imrecv(ints, 1, vector, &message, request);
    bad += message != MPI_MESSAGE_NULL;
    if (way == WAIT)
        MPI_Wait(request, status);
    if (way == WAITALL)
        MPI_Waitall(2, request, status);
    while (way == TEST && !over)
        MPI_Test(request, &over, status);
    while ((way == LOOK || way == FREE) && !over)
        MPI_Request_get_status(*request, &over, status);
    if (way == LOOK)
        MPI_Wait(request, MPI_STATUS_IGNORE);
    if (way == FREE)
        MPI_Request_free(request);
    return bad + (*request != MPI_REQUEST_NULL) + is_wrong(status, tag, vector, room, sent);
}

/* Two ints for a buffer of one: an error, of the call or of the wait. */
static int too_long(int rank)
{
    int ints[] = {5, 6}, bad = 0;
    MPI_Datatype made;
    MPI_Message message;
    MPI_Request request;
    MPI_Type_contiguous(1, MPI_INT, &made);
    MPI_Type_commit(&made);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int turn = 0; turn < 2; turn++) {
        int code, class;
        if (rank == 0) {
            MPI_Send(ints, 2, MPI_INT, 1, 0, MPI_COMM_WORLD);
            continue;
        }
        MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        code = turn ? MPI_Imrecv(ints, 1, made, &message, &request)
                    : MPI_Mrecv(ints, 1, made, &message, MPI_STATUS_IGNORE);
        if (turn && code == MPI_SUCCESS)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Error_class(code, &class);
        bad += (class != MPI_ERR_TRUNCATE) + (ints[1] != 6) + (turn && request != MPI_REQUEST_NULL);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&made);
    return bad;
}

/* Types without a gap but with reordered parts, a predefined type with a gap, and MPI_PROC_NULL. */
static int others(int rank)
{
    const int lengths[] = {1, 1}, places[] = {1, 0};
    const struct { double d; int i; } pair = {.5, 7};
    struct { double d; int i; } got = {0, 0};
    int ints[] = {3, 4}, bad = 0;
    MPI_Datatype turned;
    MPI_Message message;
    MPI_Request request;
    MPI_Status status;
    MPI_Type_indexed(2, lengths, places, MPI_INT, &turned);
    MPI_Type_commit(&turned);
    if (rank == 0) {
        MPI_Send(ints, 2, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Send(&pair, 1, MPI_DOUBLE_INT, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(ints, 1, turned, &message, MPI_STATUS_IGNORE);
        MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Imrecv(&got, 1, MPI_DOUBLE_INT, &message, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        bad += (ints[0] != 4) + (ints[1] != 3) + (got.d != pair.d) + (got.i != pair.i);
    }
    MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Imrecv(ints, 1, turned, &message, &request);
    MPI_Wait(&request, &status);
    bad += (status.MPI_SOURCE != MPI_PROC_NULL) + (message != MPI_MESSAGE_NULL);
    MPI_Type_free(&turned);
    return bad;
}

#ifdef OPEN_MPI
/* Limits the process to `more` further bytes of memory; 0: no limit. */
static void leave_memory(size_t more)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        MPI_Abort(MPI_COMM_WORLD, 1);
    fclose(file);
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = more ? pages * sysconf(_SC_PAGESIZE) + more : limit.rlim_max;
    if (setrlimit(RLIMIT_AS, &limit))
        MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Receives a message of one int into 128 MiB, without memory for the library, and with memory for
 * one copy: an error. In the first case the message can still be received. */
static int no_memory(int rank)
{
    enum { INTS = 1 << 25, BYTES = 4 * INTS };
    int one = 7, bad = 0;
    MPI_Datatype large;
    MPI_Message message;
    MPI_Request request;
    MPI_Type_vector(INTS, 1, 2, MPI_INT, &large);
    MPI_Type_commit(&large);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int turn = 0; turn < 4; turn++) {
        int code, class, got = 0;
        if (rank == 0) {
            MPI_Send(&one, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
            continue;
        }
        MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        leave_memory(turn < 2 ? BYTES / 2 : BYTES + BYTES / 2);
        code = turn % 2 ? MPI_Imrecv(&got, 1, large, &message, &request)
                        : MPI_Mrecv(&got, 1, large, &message, MPI_STATUS_IGNORE);
        leave_memory(0);
        MPI_Error_class(code, &class);
        bad += (class != MPI_ERR_NO_MEM) + (got != 0) + (turn % 2 && request != MPI_REQUEST_NULL);
        if (turn < 2) {
            MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
            bad += got != one;
        }
    }
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&large);
    return bad;
}
#else
static int no_memory(int rank)
{
    (void)rank;
    return 0;
}
#endif

int main(int argc, char **argv)
{
    const int counts[] = {1, 2, 1000, 1 << 20};
    int rank;
    long bad;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    bad = others(rank) + too_long(rank) + no_memory(rank);
    for (int turn = 0; turn < 8 * WAYS; turn++) {
        int count = counts[turn % 4], sent = count - turn / 4 % 2, *ints = malloc(2 * count * sizeof *ints);
        MPI_Datatype vector;
        MPI_Type_vector(count, 1, 2, MPI_INT, &vector);
        MPI_Type_commit(&vector);
        for (int i = 0; i < 2 * count; i++)
            ints[i] = rank == 0 ? i : GAP;
        if (rank == 0)
            MPI_Send(ints, sent, MPI_INT, 1, turn, MPI_COMM_WORLD);
        else
            bad += receive(turn / 8, ints, vector, turn, count, sent) + wrong(ints, count, sent);
        MPI_Type_free(&vector);
        free(ints);
    }
    if (rank == 1)
        printf("matched %s, %ld are wrong\n", bad ? "badly" : "ok", bad);
    MPI_Finalize();
    return bad != 0;
}
