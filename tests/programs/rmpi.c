/* A program like R with Rmpi: a shared object defines C functions with the names of MPI's Fortran
 * functions without underscore (`mpi_allreduce`, ...) but other arguments, and calls them through
 * its linkage. The program loads the object and calls it as R does.
 *
 *   rmpi    (librmpi.so in the same directory)
 *
 * Rank 0 prints `rmpi ok ranks=N`.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*call_fn)(int *ranks);

int main(int argc, char **argv)
{
    char path[4096];
    int ranks = 0;
    (void)argc;
    const char *slash = strrchr(argv[0], '/');
    snprintf(path, sizeof path, "%.*slibrmpi.so", slash ? (int)(slash - argv[0]) + 1 : 0, argv[0]);
    void *object = dlopen(path, RTLD_NOW);
    if (!object) {
        fprintf(stderr, "rmpi: %s\n", dlerror());
        return 1;
    }
    call_fn call = (call_fn)dlsym(object, "rmpi_run");
    int rank = call ? call(&ranks) : -1;
    if (rank < 0) {
        fprintf(stderr, "rmpi: a call went elsewhere\n");
        return 1;
    }
    if (rank == 0)
        printf("rmpi ok ranks=%d\n", ranks);
    return 0;
}
