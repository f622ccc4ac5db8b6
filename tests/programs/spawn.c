// A job that spawns processes: `spawn N` starts N children, exchanges messages of all lengths with
// each, merges with them, and repeats that. Every byte is checked.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMES = 2 };
static const int lengths[] = {0, 1, 1000, 70000, 2000000};

static unsigned char byte(int from, int to, int i) { return (unsigned char)(from * 7 + to * 31 + i * 13 + (i >> 8)); }

static void exchange(MPI_Comm both, int me, int peer, int mine, int theirs) {
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        int length = lengths[k];
        unsigned char *out = malloc(length + 1), *in = calloc(1, length + 1);
        for (int i = 0; i < length; i++) out[i] = byte(mine + me, theirs + peer, i);
        MPI_Sendrecv(out, length, MPI_BYTE, peer, 5, in, length, MPI_BYTE, peer, 5, both, MPI_STATUS_IGNORE);
        for (int i = 0; i < length; i++)
            if (in[i] != byte(theirs + peer, mine + me, i)) {
                printf("spawn: wrong byte %d of %d\n", i, length);
                MPI_Abort(MPI_COMM_WORLD, 2);
            }
        free(out), free(in);
    }
}

// The exchange of both sides. `child`: true for the spawned side.
static void meet(MPI_Comm both, int child) {
    int me, here, there, sum, all;
    MPI_Comm_rank(both, &me), MPI_Comm_size(both, &here), MPI_Comm_remote_size(both, &there);
    for (int n = 0; n < here * there; n++) {
        int parent = n / (child ? here : there), started = n % (child ? here : there);
        int own = child ? started : parent, peer = child ? parent : started;
        if (own == me) exchange(both, me, peer, child ? 100 : 0, child ? 0 : 100);
    }
    MPI_Comm merged;
    MPI_Intercomm_merge(both, child, &merged);
    MPI_Comm_rank(merged, &me);
    MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, merged);
    all = here + there;
    if (sum != all * (all - 1) / 2) {
        printf("spawn: wrong sum %d\n", sum);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_free(&merged);
    // (In MPI_Comm_disconnect the daemon of Open MPI 5.0.11 may crash by a double free.)
    MPI_Comm_free(&both);
}

int main(int argc, char **argv) {
    MPI_Comm parent;
    int me;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        meet(parent, 1);
        MPI_Finalize();
        return 0;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    int children = argc > 1 ? atoi(argv[1]) : 2;
    for (int n = 0; n < TIMES; n++) {
        MPI_Comm both;
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, children, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &both,
                       MPI_ERRCODES_IGNORE);
        meet(both, 0);
    }
    if (me == 0) printf("spawn ok children=%d times=%d\n", children, TIMES);
    MPI_Finalize();
    return 0;
}
