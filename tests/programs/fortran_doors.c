/* Open MPI's Fortran functions, for the Python package of Open MPI 5, which has no Fortran library.
 * The names are those of its libmpi_mpifh, and each function calls the profiling interface as the
 * original does, bypassing interposed C functions. */
#include <mpi.h>
#include <stdlib.h>

#define DOOR(name, ...)                                                                            \
    void ompi_##name##_f(__VA_ARGS__);                                                             \
    void mpi_##name##_(__VA_ARGS__) __attribute__((weak, alias("ompi_" #name "_f")));              \
    void ompi_##name##_f(__VA_ARGS__)

DOOR(init, MPI_Fint *error)
{
    *error = PMPI_Init(NULL, NULL);
}

DOOR(finalize, MPI_Fint *error)
{
    *error = PMPI_Finalize();
}

DOOR(comm_rank, MPI_Fint *comm, MPI_Fint *rank, MPI_Fint *error)
{
    *error = PMPI_Comm_rank(PMPI_Comm_f2c(*comm), rank);
}

DOOR(comm_size, MPI_Fint *comm, MPI_Fint *size, MPI_Fint *error)
{
    *error = PMPI_Comm_size(PMPI_Comm_f2c(*comm), size);
}

DOOR(comm_dup, MPI_Fint *comm, MPI_Fint *made, MPI_Fint *error)
{
    MPI_Comm twin;
    *error = PMPI_Comm_dup(PMPI_Comm_f2c(*comm), &twin);
    *made = PMPI_Comm_c2f(twin);
}

DOOR(comm_free, MPI_Fint *comm, MPI_Fint *error)
{
    MPI_Comm freed = PMPI_Comm_f2c(*comm);
    *error = PMPI_Comm_free(&freed);
    *comm = PMPI_Comm_c2f(freed);
}

DOOR(bcast, void *data, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm,
     MPI_Fint *error)
{
    *error = PMPI_Bcast(data, *count, PMPI_Type_f2c(*type), *root, PMPI_Comm_f2c(*comm));
}

DOOR(ibcast, void *data, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm,
     MPI_Fint *request, MPI_Fint *error)
{
    MPI_Request made;
    *error = PMPI_Ibcast(data, *count, PMPI_Type_f2c(*type), *root, PMPI_Comm_f2c(*comm), &made);
    *request = PMPI_Request_c2f(made);
}

DOOR(bcast_init, void *data, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm,
     MPI_Fint *info, MPI_Fint *request, MPI_Fint *error)
{
    MPI_Request made;
    *error = PMPI_Bcast_init(data, *count, PMPI_Type_f2c(*type), *root, PMPI_Comm_f2c(*comm),
                             PMPI_Info_f2c(*info), &made);
    *request = PMPI_Request_c2f(made);
}

DOOR(start, MPI_Fint *request, MPI_Fint *error)
{
    MPI_Request started = PMPI_Request_f2c(*request);
    *error = PMPI_Start(&started);
    *request = PMPI_Request_c2f(started);
}

DOOR(startall, MPI_Fint *count, MPI_Fint *requests, MPI_Fint *error)
{
    *error = MPI_SUCCESS;
    for (MPI_Fint at = 0; at < *count && *error == MPI_SUCCESS; at++)
        ompi_start_f(&requests[at], error);
}

DOOR(wait, MPI_Fint *request, MPI_Fint *status, MPI_Fint *error)
{
    MPI_Request waited = PMPI_Request_f2c(*request);
    (void)status;
    *error = PMPI_Wait(&waited, MPI_STATUS_IGNORE);
    *request = PMPI_Request_c2f(waited);
}

DOOR(request_free, MPI_Fint *request, MPI_Fint *error)
{
    MPI_Request freed = PMPI_Request_f2c(*request);
    *error = PMPI_Request_free(&freed);
    *request = PMPI_Request_c2f(freed);
}
