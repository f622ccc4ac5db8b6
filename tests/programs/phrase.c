/* Messages that consist of one phrase, in all the ways in which an MPI sends bytes: short and long
 * sends, broadcasts, puts, gets, sums. Ranks check what they receive.
 *
 *   phrase */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PHRASE "a phrase in full"
enum { PHRASE_BYTES = 16, LENGTHS = 5, LONGEST = 1 << 20 };
static const int LENGTH[LENGTHS] = {16, 400, 8192, 65536, LONGEST};
static char *sent, *received;
static int rank, size;

static void check(const char *what, int len)
{
    for (int at = 0; at < len; at += PHRASE_BYTES)
        if (memcmp(received + at, PHRASE, PHRASE_BYTES)) {
            printf("phrase MISMATCH: %s of %d bytes at %d\n", what, len, at);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    memset(received, 0, len);
}

static void two_sided(int len)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Sendrecv(sent, len, MPI_CHAR, to, 1, received, len, MPI_CHAR, from, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    check("a message", len);
    memcpy(received, rank == 0 ? sent : received, len);
    MPI_Bcast(received, len, MPI_CHAR, 0, MPI_COMM_WORLD);
    check("a broadcast", len);
}

static void one_sided(int len)
{
    char *memory;
    MPI_Win win;
    int to = (rank + 1) % size;
    MPI_Win_allocate(len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, len);
    MPI_Win_fence(0, win);
    MPI_Put(sent, len, MPI_CHAR, to, 0, len, MPI_CHAR, win);
    MPI_Win_fence(0, win);
    memcpy(received, memory, len);
    check("a put", len);
    MPI_Get(received, len, MPI_CHAR, to, 0, len, MPI_CHAR, win);
    MPI_Win_fence(0, win);
    check("a get", len);
    memset(memory, 0, len);
    MPI_Win_fence(0, win);
    MPI_Accumulate(sent, len, MPI_BYTE, to, 0, len, MPI_BYTE, MPI_BOR, win);
    MPI_Win_fence(0, win);
    memcpy(received, memory, len);
    check("an accumulate", len);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    sent = malloc(LONGEST);
    received = calloc(LONGEST, 1);
    for (int at = 0; at < LONGEST; at += PHRASE_BYTES)
        memcpy(sent + at, PHRASE, PHRASE_BYTES);
    for (int n = 0; n < LENGTHS; n++) {
        two_sided(LENGTH[n]);
        one_sided(LENGTH[n]);
    }
    if (rank == 0)
        printf("phrase ok\n");
    MPI_Finalize();
    return 0;
}
