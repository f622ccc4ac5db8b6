/* A wavefront, like NAS LU and BT: plane by plane, each rank waits for the edges of its upper and
 * left neighbours, computes, and passes on its own edges with synchronous sends (paper 2's worst
 * case). Each iteration has a forward and a backward sweep.
 *
 *   kernel_wave [--size POINTS_PER_SIDE_AND_RANK] [--iterations N]
 *
 * Integers modulo 2^64, so that every wrong byte shows. Verified: rank 0 recomputes everything
 * alone.
 */
#include "kernel.h"

typedef struct {
    long rows, columns, planes; /* of this part */
    uint64_t *v;                /* [rows + 1][columns + 1]: edges at row and column 0 */
} Part;

static uint64_t source(long row, long column, long plane, long sweep)
{
    return mix64((uint64_t)row * 1000003 + (uint64_t)column * 10007 + (uint64_t)plane * 101 +
                 (uint64_t)sweep);
}

/* One plane: a point depends on its upper and left neighbours, and on itself in the plane before.
 */
static void compute(Part *p, long row0, long column0, long k, long sweep)
{
    long w = p->columns + 1;
    for (long i = 1; i <= p->rows; i++)
        for (long j = 1; j <= p->columns; j++) {
            uint64_t *at = &p->v[i * w + j];
            *at = 3 * at[-w] + 5 * at[-1] + 7 * *at + source(row0 + i, column0 + j, k, sweep);
        }
}

static void pass(uint64_t *edge, long count, int to)
{
    MPI_Ssend(edge, (int)count, MPI_UINT64_T, to, 1, MPI_COMM_WORLD);
}

static void take(uint64_t *edge, long count, int from)
{
    MPI_Recv(edge, (int)count, MPI_UINT64_T, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* The rank at a place of the grid; backward sweeps number the grid from the opposite corner. */
static int place(long row, long column, long across, long down, int back)
{
    return (int)(back ? (down - 1 - row) * across + (across - 1 - column) : row * across + column);
}

static void sweep(Part *p, long across, long down, int back, long number)
{
    long row = rank / across, column = rank % across, w = p->columns + 1;
    uint64_t *edge = need((size_t)p->rows, 8);
    if (back)
        row = down - 1 - row, column = across - 1 - column;
    for (long k = 0; k < p->planes; k++) {
        memset(p->v, 0, sizeof *p->v * (size_t)w);
        if (row > 0)
            take(p->v + 1, p->columns, place(row - 1, column, across, down, back));
        memset(edge, 0, sizeof *edge * (size_t)p->rows);
        if (column > 0)
            take(edge, p->rows, place(row, column - 1, across, down, back));
        for (long i = 0; i < p->rows; i++)
            p->v[(i + 1) * w] = edge[i];
        compute(p, row * p->rows, column * p->columns, k, number);
        if (row < down - 1)
            pass(p->v + p->rows * w + 1, p->columns, place(row + 1, column, across, down, back));
        for (long i = 0; i < p->rows; i++)
            edge[i] = p->v[(i + 1) * w + p->columns];
        if (column < across - 1)
            pass(edge, p->rows, place(row, column + 1, across, down, back));
    }
    free(edge);
}

/* The sum of all points, each mixed with its place in the sweep's numbering. */
static uint64_t digest(const Part *p, long row0, long column0)
{
    uint64_t sum = 0;
    for (long i = 1; i <= p->rows; i++)
        for (long j = 1; j <= p->columns; j++)
            sum += mix64(p->v[i * (p->columns + 1) + j] ^
                         mix64((uint64_t)(row0 + i) << 32 | (uint64_t)(column0 + j)));
    return sum;
}

/* The result of one process without neighbours. A backward sweep numbers each part from the
 * opposite corner, so that the parts are computed one by one, keeping the edges. */
static uint64_t alone(long size, long planes, long across, long down, long sweeps)
{
    long rows = size * down, columns = size * across, w = columns + 1;
    uint64_t *v = need((size_t)((rows + 1) * w), 8);
    /* Parts swap places between sweeps, without being turned themselves. */
    uint64_t *other = need((size_t)((rows + 1) * w), 8);
    for (long s = 0; s < sweeps; s++) {
        Part all = {rows, columns, planes, v};
        if (s > 0) {
            for (long i = 0; i < rows; i++)
                for (long j = 0; j < columns; j++) {
                    long bi = down - 1 - i / size, bj = across - 1 - j / size;
                    other[(bi * size + i % size + 1) * w + bj * size + j % size + 1] =
                        v[(i + 1) * w + j + 1];
                }
            memcpy(v, other, sizeof *v * (size_t)((rows + 1) * w));
        }
        for (long k = 0; k < planes; k++)
            compute(&all, 0, 0, k, s);
    }
    Part all = {rows, columns, planes, v};
    uint64_t sum = digest(&all, 0, 0);
    free(v);
    free(other);
    return sum;
}

int main(int argc, char **argv)
{
    long size = 96, iterations = 30, planes = 200, down = 1;
    kernel_init(&argc, &argv, "wave", &size, &iterations);
    if (size > 4096)
        fail("--size at most 4096");
    while ((down + 1) * (down + 1) <= ranks)
        down++;
    while (ranks % down)
        down--;
    long across = ranks / down, w = size + 1;
    Part p = {size, size, planes, need((size_t)(w * w), 8)};

    kernel_begin();
    for (long it = 0; it < iterations; it++) {
        kernel_step();
        sweep(&p, across, down, 0, 2 * it);
        sweep(&p, across, down, 1, 2 * it + 1);
    }
    double seconds = kernel_end();

    /* After a backward sweep parts are numbered from the opposite corner. */
    long row = down - 1 - rank / across, column = across - 1 - rank % across;
    uint64_t mine = digest(&p, row * size, column * size), sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    int good = rank != 0 || sum == alone(size, planes, across, down, 2 * iterations);
    return kernel_finish(good, seconds, "%ld planes on %ld x %ld ranks, digest %016llx",
                         2 * iterations * planes, down, across, (unsigned long long)sum);
}
