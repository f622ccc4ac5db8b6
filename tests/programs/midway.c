/* A rank dies while a group for multicast is agreed on: rank 1 is killed by SIGKILL before one of the
 * collective calls that the preloaded library makes itself, by its other names (PMPI_Allgather ...), of
 * which this program has its own in front of the MPI's. The others go on calling, whatever fails.
 *
 *   midway bcast NTH HANDLER COMM      broadcasts; 0: it dies in the program, before the call that agrees
 *   midway init NTH HANDLER COMM       MPI_Bcast_init; then the communicator is freed
 *   midway freed 0 HANDLER COMM        it dies after requests were freed; then the communicator is freed
 *
 * A fifth word, unseen, has MPICH's launcher miss the end of the rank: the launcher looks for ended children
 * only after other events, and is at rest, having seen the rank's descriptors close, when the rank is killed.
 *
 * HANDLER is returns (MPI_ERRORS_RETURN), handler (of the program's) or mixed (returns at even ranks, the
 * program's at others); COMM is world, dup or split. Each rank that is left prints
 * `midway: rank R errors E called C own N`: calls that failed, calls of the handler, and of the library's
 * own. The handler is called once for each call of the program's that failed.
 */
#define _GNU_SOURCE
#include <mpi.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pattern.h"

enum { CALLS = 200, BYTES = 20000, AGREES_AT = 99 };

/* Time without a context switch after which the launcher is at rest; descriptors that are looked at. */
enum { REST_US = 300000, FDS = 1024 };

static int called, own, dies_before = -1, wrong, unseen;
static volatile sig_atomic_t told;

static void note_death(int signal)
{
    (void)signal;
    told = 1;
}

/* How often the launcher's process on this host has begun to wait. */
static long launcher_waits(void)
{
    char path[64], line[256];
    long waits = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)getppid());
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "voluntary_ctxt_switches: %ld", &waits);
    if (status)
        fclose(status);
    return waits;
}

/* The launcher's pipes are open under several numbers. */
static void close_pipes(void)
{
    char path[64], target[64];
    for (int fd = 0; fd < FDS; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target) > 5 && !strncmp(target, "pipe:", 5))
            close(fd);
    }
}

/* The launcher sees this process close its descriptors, and tells all ranks by SIGUSR1. */
static void leave_launcher(void)
{
    const char *pmi = getenv("PMI_FD");
    if (!pmi)
        return;
    signal(SIGUSR1, note_death);
    close_pipes();
    close(atoi(pmi));
    while (!told)
        usleep(1000);
    for (long before = -2, now; (now = launcher_waits()) != before; before = now)
        usleep(REST_US);
}

static void die(void)
{
    if (unseen)
        leave_launcher();
    raise(SIGKILL);
}

static void note(MPI_Comm *comm, int *err, ...)
{
    (void)comm, (void)err;
    called++;
}

/* A call of the library's own. */
static void *behind(const char *name)
{
    if (++own == dies_before)
        die();
    return dlsym(RTLD_NEXT, name);
}

int PMPI_Allgather(const void *from, int n, MPI_Datatype type, void *to, int m, MPI_Datatype into, MPI_Comm comm)
{
    int (*next)(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm) = behind("PMPI_Allgather");
    return next(from, n, type, to, m, into, comm);
}

int PMPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int (*next)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm) = behind("PMPI_Allreduce");
    return next(from, to, n, type, op, comm);
}

int PMPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
    int (*next)(MPI_Comm, int, int, MPI_Comm *) = dlsym(RTLD_NEXT, "PMPI_Comm_split");
    int size;
    MPI_Comm_size(comm, &size);
    if (size > 1)
        next = behind("PMPI_Comm_split");
    return next(comm, color, key, made);
}

#ifdef OPEN_MPI
int PMPIX_Comm_agree(MPI_Comm comm, int *flag)
{
    int (*next)(MPI_Comm, int *) = behind("PMPIX_Comm_agree");
    return next(comm, flag);
}
#endif

/* Broadcasts: how many failed. */
static int broadcasts(MPI_Comm comm, int rank, int dies_in)
{
    static char bytes[BYTES];
    int failed = 0;
    for (int i = 0; i < CALLS; i++) {
        if (i == dies_in)
            die();
        memset(bytes, rank == 0 ? i : ~i, BYTES);
        if (MPI_Bcast(bytes, BYTES, MPI_CHAR, 0, comm))
            failed++;
        else if (bytes[0] != (char)i || bytes[BYTES - 1] != (char)i)
            wrong++;
    }
    return failed;
}

/* A broadcast that is started twice: how many calls failed. */
static int again(MPI_Comm comm)
{
    int failed = 0;
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
    static char bytes[BYTES];
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Bcast_init(bytes, BYTES, MPI_CHAR, 0, comm, MPI_INFO_NULL, &request))
        return 1;
    for (int i = 0; i < 2 && !failed; i++)
        failed = MPI_Start(&request) || MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (!failed)
        MPI_Request_free(&request);
#else
    (void)comm;
#endif
    return failed;
}

int main(int argc, char **argv)
{
    const char *kind = argv[1], *how = argv[3], *which = argv[4];
    int rank, ranks, failed = 0, dies_in = -1;
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 5)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (!strcmp(which, "dup"))
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    else if (!strcmp(which, "split"))
        MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm);
    MPI_Comm_create_errhandler(note, &handler);
    int counts = !strcmp(how, "handler") || (!strcmp(how, "mixed") && rank % 2);
    MPI_Comm_set_errhandler(comm, counts ? handler : MPI_ERRORS_RETURN);
    unseen = argc > 5 && !strcmp(argv[5], "unseen");
    own = 0;
    if (rank == 1 && atoi(argv[2]) > 0)
        dies_before = atoi(argv[2]);
    else if (rank == 1)
        dies_in = AGREES_AT;
    if (!strcmp(kind, "bcast"))
        failed = broadcasts(comm, rank, dies_in);
    else
        failed = again(comm);
    if (!strcmp(kind, "freed") && rank == 1)
        die();
    if (!strcmp(kind, "freed"))
        for (int err = MPI_SUCCESS; err == MPI_SUCCESS; failed += err != MPI_SUCCESS)
            err = MPI_Barrier(comm);
    if (comm != MPI_COMM_WORLD && MPI_Comm_free(&comm))
        failed++;
    printf("midway: rank %d errors %d called %d own %d%s\n", rank, failed, called, own,
           wrong ? " WRONG DATA" : counts && called != failed ? " CALLED FOR OTHERS" : "");
    fflush(stdout);
#ifdef OPEN_MPI
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return MPI_Finalize();
#else
    _exit(0); /* MPICH's own MPI_Finalize waits for the dead */
#endif
}
