/* Fourier transform of a cube, like NAS FT: slabs, local transforms of two dimensions, a transpose
 * (alltoall), the third dimension; and the inverse.
 *
 *   kernel_ft [--size N] [--iterations N]    N a power of two, at least the number of ranks
 *
 * Verified: the transform of two plane waves is two points, and the inverse gives the waves.
 */
#include "kernel.h"

#include <complex.h>
#include <math.h>

typedef double complex C;

static long n, slab; /* points per side; planes per rank */
static C *roots;     /* exp(-2 pi i k / n) */

static void make_roots(void)
{
    roots = need((size_t)n, sizeof(C));
    for (long k = 0; k < n; k++)
        roots[k] = cexp(-2 * M_PI * I * (double)k / (double)n);
}

/* In place, radix 2; `sign` 1 forward, -1 back (not scaled). */
static void fft(C *v, int sign)
{
    for (long i = 1, j = 0; i < n; i++) {
        long bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j |= bit;
        if (i < j) {
            C t = v[i];
            v[i] = v[j];
            v[j] = t;
        }
    }
    for (long len = 2; len <= n; len *= 2) {
        for (long at = 0; at < n; at += len) {
            for (long k = 0; k < len / 2; k++) {
                C root = roots[k * (n / len)];
                C odd = v[at + k + len / 2] * (sign > 0 ? root : conj(root));
                v[at + k + len / 2] = v[at + k] - odd;
                v[at + k] += odd;
            }
        }
    }
}

/* Both dimensions of each plane of this rank's slab [slab][n][n]. */
static void planes(C *data, C *line, int sign)
{
    for (long z = 0; z < slab; z++) {
        C *plane = data + z * n * n;
        for (long y = 0; y < n; y++)
            fft(plane + y * n, sign);
        for (long x = 0; x < n; x++) {
            for (long y = 0; y < n; y++)
                line[y] = plane[y * n + x];
            fft(line, sign);
            for (long y = 0; y < n; y++)
                plane[y * n + x] = line[y];
        }
    }
}

/* [slab of z][y][x] becomes [slab of y][z][x], or the other way round: it is the same exchange. */
static void transpose(C *data, C *out)
{
    long block = slab * slab * n;
    for (int r = 0; r < ranks; r++)
        for (long z = 0; z < slab; z++)
            memcpy(out + r * block + z * slab * n, data + (z * n + r * slab) * n,
                   sizeof(C) * (size_t)(slab * n));
    MPI_Alltoall(out, (int)(2 * block), MPI_DOUBLE, data, (int)(2 * block), MPI_DOUBLE,
                 MPI_COMM_WORLD);
    memcpy(out, data, sizeof(C) * (size_t)(block * ranks));
    for (int r = 0; r < ranks; r++)
        for (long z = 0; z < slab; z++)
            for (long y = 0; y < slab; y++)
                memcpy(data + (y * n + r * slab + z) * n, out + r * block + (z * slab + y) * n,
                       sizeof(C) * (size_t)n);
}

/* The second dimension of [slab][n][n]. */
static void columns(C *data, C *line, int sign)
{
    for (long p = 0; p < slab; p++)
        for (long x = 0; x < n; x++) {
            C *at = data + p * n * n + x;
            for (long z = 0; z < n; z++)
                line[z] = at[z * n];
            fft(line, sign);
            for (long z = 0; z < n; z++)
                at[z * n] = line[z];
        }
}

typedef struct {
    long x, y, z;
    double size;
} Wave;

static C wave_at(const Wave *w, long x, long y, long z)
{
    /* exp(+2 pi i k / n) is the root's conjugate. */
    return w->size * conj(roots[(w->x * x + w->y * y + w->z * z) % n]);
}

static void make(C *data, const Wave *w)
{
    for (long z = 0; z < slab; z++)
        for (long y = 0; y < n; y++)
            for (long x = 0; x < n; x++)
                data[(z * n + y) * n + x] = wave_at(&w[0], x, y, rank * slab + z) +
                                            wave_at(&w[1], x, y, rank * slab + z);
}

/* Largest error of the spectrum [slab of y][z][x]. */
static double spectrum_error(const C *data, const Wave *w)
{
    double worst = 0, points = (double)n * (double)n * (double)n;
    for (long y = 0; y < slab; y++)
        for (long z = 0; z < n; z++)
            for (long x = 0; x < n; x++) {
                C want = 0;
                for (int i = 0; i < 2; i++)
                    if (x == w[i].x && rank * slab + y == w[i].y && z == w[i].z)
                        want += w[i].size;
                double off = cabs(data[(y * n + z) * n + x] / points - want);
                worst = off < worst ? worst : off; /* keeps a NaN */
            }
    return worst;
}

static double wave_error(const C *data, const Wave *w)
{
    double worst = 0, points = (double)n * (double)n * (double)n;
    for (long z = 0; z < slab; z++)
        for (long y = 0; y < n; y++)
            for (long x = 0; x < n; x++) {
                long at = rank * slab + z;
                C want = wave_at(&w[0], x, y, at) + wave_at(&w[1], x, y, at);
                double off = cabs(data[(z * n + y) * n + x] / points - want);
                worst = off < worst ? worst : off;
            }
    return worst;
}

int main(int argc, char **argv)
{
    long iterations = 2;
    double worst = 0;
    n = 128;
    kernel_init(&argc, &argv, "ft", &n, &iterations);
    if (!power_of_two(n) || n % ranks || n > 1024)
        fail("--size must be a power of two up to 1024 and a multiple of the number of ranks");
    slab = n / ranks;
    make_roots();
    size_t points = (size_t)(slab * n * n);
    C *data = need(points, sizeof(C)), *spare = need(points, sizeof(C)), *line = need((size_t)n, sizeof(C));

    kernel_begin();
    for (long it = 0; it < iterations; it++) {
        kernel_step();
        Wave w[2] = {{1 + it % (n - 1), 2 % n, n - 1, 1}, {n / 2, it % n, n / 2 - 1, 0.5}};
        make(data, w);
        planes(data, line, 1);
        transpose(data, spare);
        columns(data, line, 1);
        double off = spectrum_error(data, w);
        worst = off < worst ? worst : off;
        columns(data, line, -1);
        transpose(data, spare);
        planes(data, line, -1);
        off = wave_error(data, w);
        worst = off < worst ? worst : off;
    }
    double seconds = kernel_end();
    return kernel_finish(worst < 1e-12, seconds, "error at most %.1e on rank 0", worst);
}
