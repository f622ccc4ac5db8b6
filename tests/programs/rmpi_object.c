/* The shared object of rmpi.c. As in Rmpi.so, arguments and results are pointers to an
 * interpreter's objects (here a struct), unlike those of the Fortran functions with these names. */
#include <mpi.h>
#include <stdlib.h>

typedef struct value {
    int magic;
    int number;
} value;

enum { MAGIC = 0x52 };

static value *make(int number)
{
    value *made = malloc(sizeof *made);
    made->magic = MAGIC;
    made->number = number;
    return made;
}

static int of(const value *value)
{
    if (!value || value->magic != MAGIC)
        abort();
    return value->number;
}

value *mpi_bcast(value *what, value *root)
{
    MPI_Bcast(&what->number, 1, MPI_INT, of(root), MPI_COMM_WORLD);
    return make(of(what));
}

value *mpi_allreduce(value *what)
{
    int sum = 0, number = of(what);
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return make(sum);
}

value *mpi_allgather(value *what)
{
    int ranks, sum = 0, number = of(what);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int *all = malloc(sizeof *all * ranks);
    MPI_Allgather(&number, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++)
        sum += all[i];
    free(all);
    return make(sum);
}

value *mpi_barrier(void)
{
    return make(MPI_Barrier(MPI_COMM_WORLD));
}

value *mpi_comm_free(value *unused)
{
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    of(unused);
    return make(MPI_Comm_free(&copy));
}

value *mpi_finalize(void)
{
    return make(MPI_Finalize());
}

/* The rank, or -1 if a result does not come from the functions above. */
int rmpi_run(int *ranks)
{
    int rank;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    int good = of(mpi_bcast(make(rank == 0 ? 42 : 0), make(0))) == 42;
    good &= of(mpi_allreduce(make(1))) == *ranks;
    good &= of(mpi_allgather(make(2))) == 2 * *ranks;
    good &= of(mpi_barrier()) == 0 && of(mpi_comm_free(make(0))) == 0;
    good &= of(mpi_finalize()) == 0;
    return good ? rank : -1;
}
