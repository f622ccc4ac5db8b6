/* Behaviour when a peer is killed: rank 1 dies by SIGKILL while rank 0 has a receive from it posted
 * and MPI_ERRORS_RETURN set.
 *
 *   deadpeer [recv|send|any]     any: the receive is from MPI_ANY_SOURCE
 *   deadpeer bcast RANK          that rank dies during broadcasts from rank 0; all others print
 *   deadpeer bcast_init RANK     the same with persistent broadcasts
 *   deadpeer allreduce RANK      the same with calls whose results all get; also allgather, barrier
 *
 * Rank 0 prints `deadpeer: error after SECONDS s: TEXT` and exits with 0 if an MPI call returned an
 * error.
 */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "pattern.h"

/* Open MPI has MPI_Bcast_init in an extension before its MPI 4 support. */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_INIT 1
#endif

static void die(int signal)
{
    (void)signal;
    raise(SIGKILL);
}

/* Broadcasts from rank 0, or after the first one other calls, until a call fails; rank `dying` is
 * killed at an arbitrary moment. */
static void broadcasts(int rank, int dying, const char *kind)
{
    static char text[MPI_MAX_ERROR_STRING], buf[300000];
    struct itimerval soon = {.it_value = {.tv_usec = 500000}};
    static double ones[100], sums[100], all[100 * 64];
    int len = 0, err = MPI_SUCCESS, again = !strcmp(kind, "bcast_init");
    MPI_Request request = MPI_REQUEST_NULL;
    signal(SIGALRM, die);
#ifdef HAS_INIT
    if (again)
        MPI_Bcast_init(buf, sizeof buf, MPI_BYTE, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
#endif
    double t = now_s();
    for (int n = 0; err == MPI_SUCCESS && now_s() - t < 60; n++) {
        if (n == 100) {
            t = now_s();
            if (rank == dying)
                setitimer(ITIMER_REAL, &soon, NULL);
        }
        if (n && !strcmp(kind, "allreduce"))
            err = MPI_Allreduce(ones, sums, 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        else if (n && !strcmp(kind, "allgather"))
            err = MPI_Allgather(ones, 100, MPI_DOUBLE, all, 100, MPI_DOUBLE, MPI_COMM_WORLD);
        else if (n && !strcmp(kind, "barrier"))
            err = MPI_Barrier(MPI_COMM_WORLD);
        else if (!again)
            err = MPI_Bcast(buf, sizeof buf, MPI_BYTE, 0, MPI_COMM_WORLD);
        else if ((err = MPI_Start(&request)) == MPI_SUCCESS)
            err = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (err != MPI_SUCCESS)
        MPI_Error_string(err, text, &len);
    printf("deadpeer: rank %d: %s after %.2f s: %s\n", rank, err ? "error" : "nothing", now_s() - t, text);
    fflush(stdout);
    _exit(err == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    int rank, ranks, len = 0, err = MPI_SUCCESS;
    static char text[MPI_MAX_ERROR_STRING], buf[1024];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc > 2) {
        MPI_Barrier(MPI_COMM_WORLD);
        broadcasts(rank, atoi(argv[2]), argv[1]);
    }
    int sending = argc > 1 && !strcmp(argv[1], "send");
    int from = argc > 1 && !strcmp(argv[1], "any") ? MPI_ANY_SOURCE : 1;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD); /* then each rank knows that all left the first */
    if (rank == 1)
        raise(SIGKILL);
    double t = now_s();
    if (rank == 0) {
        while (err == MPI_SUCCESS && now_s() - t < 60) {
            if (sending)
                err = MPI_Send(buf, sizeof buf, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            else
                err = MPI_Recv(buf, sizeof buf, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (err != MPI_SUCCESS)
            MPI_Error_string(err, text, &len);
        printf("deadpeer: %s after %.2f s: %s\n", err ? "error" : "nothing", now_s() - t, text);
        fflush(stdout);
    }
    _exit(err == MPI_SUCCESS && rank == 0); /* MPI_Finalize would wait for the dead rank */
}
