/* Messages between two ranks with contiguous or scattered data on either side: MPIs choose their
 * protocol by that and by the length. Receives are posted before or after the send, with or without
 * a probe, and into buffers larger than the message; every byte is checked, including gaps.
 *
 *   layouts [--named] [BYTES...]
 *
 * --named: no receive or probe uses MPI_ANY_SOURCE.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pattern.h"

enum { BLOCK = 8, GAP = 0xee, SPARE = 64 };

static int rank, anyone = MPI_ANY_SOURCE;

/* Extent in memory of a message of `bytes`: contiguous, or in pieces of 8 bytes with gaps of 8. */
static size_t extent(long bytes, int pieces)
{
    return (size_t)bytes * (pieces ? 2 : 1);
}

static MPI_Datatype type_of(long bytes, int pieces)
{
    MPI_Datatype type;
    if (pieces)
        MPI_Type_vector((int)(bytes / BLOCK), BLOCK, 2 * BLOCK, MPI_BYTE, &type);
    else
        MPI_Type_contiguous((int)bytes, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

static unsigned char byte_of(uint64_t key, long i)
{
    return (unsigned char)(mix64(key + (uint64_t)i / 8) >> (8 * (i % 8)));
}

static void fill(unsigned char *to, long bytes, int pieces, uint64_t key)
{
    memset(to, GAP, extent(bytes, pieces));
    for (long i = 0; i < bytes; i++)
        to[pieces ? i / BLOCK * 2 * BLOCK + i % BLOCK : i] = byte_of(key, i);
}

static void check(const unsigned char *got, long bytes, long room, int pieces, uint64_t key,
                  const char *what)
{
    for (size_t at = 0; at < extent(room, pieces); at++) {
        int gap = pieces && at % (2 * BLOCK) >= BLOCK;
        long i = pieces ? (long)(at / (2 * BLOCK) * BLOCK + at % BLOCK) : (long)at;
        unsigned char want = gap || i >= bytes ? GAP : byte_of(key, i);
        if (got[at] != want) {
            fprintf(stderr, "layouts WRONG %s bytes=%ld pieces=%d at=%zu got=%02x want=%02x\n", what,
                    bytes, pieces, at, got[at], want);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

/* One message from rank 0 to rank 1. `late`: it is there before its receive; `probe`: looked at
 * first. */
static void message(long bytes, int from_pieces, int to_pieces, int late, int probe)
{
    static uint64_t key;
    char what[80];
    snprintf(what, sizeof what, "%s to %s%s%s", from_pieces ? "pieces" : "one",
             to_pieces ? "pieces" : "one", late ? ", late" : "", probe ? ", probed" : "");
    key += 1000003;
    long room = bytes + SPARE;
    if (rank == 0) {
        unsigned char *data = malloc(extent(bytes, from_pieces) + 1);
        MPI_Datatype type = type_of(bytes, from_pieces);
        MPI_Request request;
        fill(data, bytes, from_pieces, key);
        if (!late)
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Isend(data, 1, type, 1, 1, MPI_COMM_WORLD, &request);
        if (late)
            MPI_Send(NULL, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Type_free(&type);
        free(data);
        return;
    }
    unsigned char *data = malloc(extent(room, to_pieces));
    MPI_Datatype type = type_of(room, to_pieces);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    int got;
    memset(data, GAP, extent(room, to_pieces));
    if (late) {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (!probe) {
        MPI_Irecv(data, 1, type, anyone, 1, MPI_COMM_WORLD, &request);
        MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    } else {
        MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
    if (probe) {
        MPI_Probe(anyone, 1, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        if (got != bytes) {
            fprintf(stderr, "layouts WRONG %s: probe says %d of %ld bytes\n", what, got, bytes);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    if (request == MPI_REQUEST_NULL)
        MPI_Irecv(data, 1, type, 0, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_BYTE, &got);
    if (got != bytes || status.MPI_SOURCE != 0) {
        fprintf(stderr, "layouts WRONG %s: %d of %ld bytes\n", what, got, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    check(data, bytes, room, to_pieces, key, what);
    MPI_Type_free(&type);
    free(data);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    static const char *usual[] = {"0", "8", "1000", "16384", "16392", "65536", "65544", "3000000"};
    if (argc > 1 && strcmp(argv[1], "--named") == 0) {
        anyone = 0;
        argc--, argv++;
    }
    int count = argc > 1 ? argc - 1 : (int)(sizeof usual / sizeof *usual);
    const char *const *lengths = argc > 1 ? (const char *const *)argv + 1 : usual;
    long messages = 0;
    for (int n = 0; n < count; n++)
        for (int how = 0; how < 16; how++, messages++)
            if (rank < 2)
                message(atol(lengths[n]) / BLOCK * BLOCK, how & 1, how >> 1 & 1, how >> 2 & 1,
                        how >> 3);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("layouts ok messages=%ld\n", messages);
    MPI_Finalize();
    return 0;
}
