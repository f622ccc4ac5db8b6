/* A job that ends in order after the loss of a rank (ULFM): rank 1 is killed by SIGKILL, the others
 * notice it in a call of their own, and finalise without repairing MPI_COMM_WORLD.
 *
 *   ulfm_ends returns    MPI_ERRORS_RETURN; a barrier returns the error
 *   ulfm_ends handler    a barrier calls the program's error handler
 *   ulfm_ends any        a receive from any rank returns the error
 *   ulfm_ends freed      a duplicate of MPI_COMM_WORLD with many broadcasts is freed after the loss
 *   ulfm_ends left       broadcasts of rank 0 on a duplicate give the error; who has it calls no more of them
 *                        and shrinks the duplicate, for which all that are left are needed
 *   ulfm_ends ileft      the same with MPI_Ibcast, whose errors the handler of MPI_COMM_WORLD may get
 *   ulfm_ends ikept      the same, and the handler of the duplicate gets them, which is set before its first
 *                        broadcast
 *   ulfm_ends revoked    the same; who has it revokes the duplicate first
 *
 * MPI_COMM_WORLD has MPI_ERRORS_ARE_FATAL again when MPI_Finalize is called. Rank 0 prints
 * `ulfm_ends ok MODE`.
 */
#include <mpi.h>

#include <mpi-ext.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pattern.h"

enum { BROADCASTS = 300, BYTES = 20000 };

static int called;

static void note(MPI_Comm *comm, int *err, ...)
{
    (void)comm;
    called = *err;
}

static int class_of(int err)
{
    int class;
    MPI_Error_class(err, &class);
    return class;
}

static void broadcasts(MPI_Comm comm)
{
    static char bytes[BYTES];
    int rank;
    MPI_Comm_rank(comm, &rank);
    for (int i = 0; i < BROADCASTS; i++) {
        memset(bytes, rank == 0 ? i : ~i, BYTES);
        MPI_Bcast(bytes, BYTES, MPI_CHAR, 0, comm);
        if (bytes[0] != (char)i || bytes[BYTES - 1] != (char)i)
            MPI_Abort(comm, 1);
    }
}

/* Broadcasts of rank 0 in which rank 1 dies: the first error. */
static int until_lost(MPI_Comm comm, int rank, int posts)
{
    static char bytes[BYTES];
    int err = MPI_SUCCESS;
    for (int i = 0; err == MPI_SUCCESS; i++) {
        if (rank == 1 && i == BROADCASTS)
            raise(SIGKILL);
        MPI_Request request = MPI_REQUEST_NULL;
        if (!posts)
            err = MPI_Bcast(bytes, BYTES, MPI_CHAR, 0, comm);
        else if ((err = MPI_Ibcast(bytes, BYTES, MPI_CHAR, 0, comm, &request)) == MPI_SUCCESS)
            err = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return err;
}

static void left(MPI_Comm comm, int rank, const char *mode)
{
    int ranks, now, class;
    MPI_Comm next;
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (!strcmp(mode, "ileft"))
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    class = class_of(until_lost(comm, rank, mode[0] == 'i'));
    if (class != MPIX_ERR_PROC_FAILED && class != MPIX_ERR_REVOKED) {
        fprintf(stderr, "ulfm_ends: error class %d of a broadcast\n", class);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (!strcmp(mode, "revoked"))
        MPIX_Comm_revoke(comm);
    if (MPIX_Comm_shrink(comm, &next) || MPI_Comm_size(next, &now) || now != ranks - 1)
        MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "returns";
    int rank, err = MPI_SUCCESS, number = 0;
    MPI_Comm copy;
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    if (!strcmp(mode, "ikept"))
        MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
    broadcasts(copy);
    if (!strcmp(mode, "left") || mode[0] == 'i' || !strcmp(mode, "revoked"))
        left(copy, rank, mode);
    MPI_Comm_create_errhandler(note, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, !strcmp(mode, "handler") ? handler : MPI_ERRORS_RETURN);
    err = MPI_Barrier(MPI_COMM_WORLD); /* rank 1 may die while others are in the barrier */
    if (rank == 1)
        raise(SIGKILL);
    if (err == MPI_SUCCESS && !strcmp(mode, "any"))
        err = MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    while (err == MPI_SUCCESS)
            err = MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(mode, "handler"))
        err = called;
    int class = class_of(err);
    if (class != MPIX_ERR_PROC_FAILED && class != MPIX_ERR_PROC_FAILED_PENDING) {
        fprintf(stderr, "ulfm_ends: error class %d\n", class);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (!strcmp(mode, "freed"))
        MPI_Comm_free(&copy);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
    if (rank == 0)
        printf("ulfm_ends ok %s\n", mode);
    fflush(stdout);
    return MPI_Finalize();
}
