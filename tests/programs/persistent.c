/* Persistent sends of data that begins after the start of its buffer, and collectives built on
 * them.
 *
 *   persistent
 *
 * Each rank has one block of rows for each rank in an array, as in programs that transpose arrays
 * (subarrays), and sends them by each kind of persistent send, three times, and by MPI_Alltoallw;
 * then two elements of a type whose first part comes after its second. All data is checked. Prints
 * `persistent ok`.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 6, COLUMNS = 1000, RANKS_MAX = 16, TURNS = 3 };
enum way { SEND, SSEND, BSEND, RSEND, ALLTOALLW, WAYS };

static int rank, ranks;

/* A subarray type: the rows from `row` on. */
static MPI_Datatype rows(int row)
{
    const int all[] = {ROWS * ranks, COLUMNS}, part[] = {ROWS, COLUMNS}, start[] = {row, 0};
    MPI_Datatype type;
    MPI_Type_create_subarray(2, all, part, start, MPI_ORDER_C, MPI_INT, &type);
    MPI_Type_commit(&type);
    return type;
}

static int value(int from, int to, int place, int turn)
{
    return ((turn * RANKS_MAX + from) * RANKS_MAX + to) * ROWS * COLUMNS + place;
}

static void begin(enum way way, const int *data, MPI_Datatype type, int to, MPI_Request *request)
{
    switch (way) {
    case SEND:
        MPI_Send_init(data, 1, type, to, way, MPI_COMM_WORLD, request);
        break;
    case SSEND:
        MPI_Ssend_init(data, 1, type, to, way, MPI_COMM_WORLD, request);
        break;
    case BSEND:
        MPI_Bsend_init(data, 1, type, to, way, MPI_COMM_WORLD, request);
        break;
    default:
        MPI_Rsend_init(data, 1, type, to, way, MPI_COMM_WORLD, request);
    }
}

static void fill(int *data, int turn)
{
    for (int to = 0; to < ranks; to++)
        for (int i = 0; i < ROWS * COLUMNS; i++)
            data[to * ROWS * COLUMNS + i] = value(rank, to, i, turn);
}

static long wrong(int *data, int turn)
{
    long n = 0;
    for (int from = 0; from < ranks; from++)
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            n += data[from * ROWS * COLUMNS + i] != value(from, rank, i, turn);
            data[from * ROWS * COLUMNS + i] = -1;
        }
    return n;
}

static long exchange(enum way way, int *out, int *in)
{
    MPI_Datatype types[RANKS_MAX];
    MPI_Request requests[2 * RANKS_MAX];
    int ones[RANKS_MAX], zeros[RANKS_MAX];
    long bad = 0;
    for (int i = 0; i < ranks; i++) {
        types[i] = rows(i * ROWS);
        ones[i] = 1;
        zeros[i] = 0;
    }
    for (int i = 0; i < ranks && way != ALLTOALLW; i++) {
        MPI_Recv_init(in, 1, types[i], i, way, MPI_COMM_WORLD, &requests[i]);
        begin(way, out, types[i], i, &requests[ranks + i]);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        fill(out, turn);
        if (way == ALLTOALLW) {
            MPI_Alltoallw(out, ones, zeros, types, in, ones, zeros, types, MPI_COMM_WORLD);
        } else {
            MPI_Startall(ranks, requests);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Startall(ranks, requests + ranks);
            MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
        }
        bad += wrong(in, turn);
    }
    for (int i = 0; i < ranks; i++) {
        MPI_Type_free(&types[i]);
        if (way != ALLTOALLW) {
            MPI_Request_free(&requests[i]);
            MPI_Request_free(&requests[ranks + i]);
        }
    }
    return bad;
}

/* Two elements of two ints, sent in swapped order, after an int that is not sent. */
static long turned(void)
{
    const int lengths[] = {1, 1}, places[] = {2, 1};
    const int sent[] = {0, 1, 2, 3, 4};
    int got[4] = {0};
    MPI_Datatype type;
    MPI_Request request;
    MPI_Type_indexed(2, lengths, places, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Send_init(sent, 2, type, (rank + 1) % ranks, 0, MPI_COMM_WORLD, &request);
    MPI_Type_free(&type);
    MPI_Start(&request);
    MPI_Recv(got, 4, MPI_INT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    return (got[0] != 2) + (got[1] != 1) + (got[2] != 4) + (got[3] != 3);
}

int main(int argc, char **argv)
{
    long bad = 0, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > RANKS_MAX)
        MPI_Abort(MPI_COMM_WORLD, 1);
    int size = ROWS * COLUMNS * ranks * (int)sizeof(int), room = size + ranks * MPI_BSEND_OVERHEAD;
    int *out = malloc(size), *in = malloc(size);
    void *kept = malloc(room);
    MPI_Buffer_attach(kept, room);
    for (enum way way = SEND; way < WAYS; way++) {
        long some = exchange(way, out, in);
        if (some)
            printf("persistent: way %d, rank %d: %ld ints are wrong\n", way, rank, some);
        bad += some;
    }
    bad += turned();
    MPI_Buffer_detach(&kept, &room);
    MPI_Allreduce(&bad, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("persistent %s, %ld are wrong\n", all ? "badly" : "ok", all);
    free(out);
    free(in);
    free(kept);
    MPI_Finalize();
    return all != 0;
}
