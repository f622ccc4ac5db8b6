/* A tool that uses the MPI's profiling interface: it counts calls, passes them on, and prints their
 * number at the end. Linked into a program, or preloaded. With ENDS it intercepts no broadcast,
 * only the calls that end communicators and the job. */
#include <mpi.h>
#include <stdio.h>

/* The library is also preloaded into the launcher, which has no MPI. */
#pragma weak ompi_mpi_comm_world
static long broadcasts, freed;

#ifndef ENDS
int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    __atomic_fetch_add(&broadcasts, 1, __ATOMIC_RELAXED);
    return PMPI_Bcast(buffer, count, type, root, comm);
}
#endif

int MPI_Comm_free(MPI_Comm *comm)
{
    __atomic_fetch_add(&freed, 1, __ATOMIC_RELAXED);
    return PMPI_Comm_free(comm);
}

int MPI_Finalize(void)
{
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("tool rank=%d broadcasts=%ld freed=%ld\n", rank, broadcasts, freed);
    fflush(stdout);
    return PMPI_Finalize();
}
