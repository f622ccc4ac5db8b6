/* Measures the current distance of the two ranks' cores: a flag bounces through a shared file
 * mapping. On virtual machines the distance changes within seconds, and with it all communication
 * between the processes, so that a sample is valid only with the same distance before and after. */
#ifndef MARLINE_HOP_H
#define MARLINE_HOP_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pattern.h"

enum { HOP_LINE = 128, HOP_BATCHES = 15, HOP_ROUNDS = 300 };
static const uint64_t HOP_STOP = 1ull << 63;

typedef struct {
    _Atomic uint64_t *mine, *theirs;
    uint64_t next;
} Hop;

/* Both ranks map the same file; without a file `mine` stays NULL and hops are unknown (-1). */
static inline int hop_open(Hop *hop, const char *path, int rank)
{
    hop->next = 0;
    hop->mine = hop->theirs = NULL;
    if (!path)
        return 0;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, 4096))
        return -1;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return -1;
    hop->mine = (_Atomic uint64_t *)(page + (rank ? HOP_LINE : 0));
    hop->theirs = (_Atomic uint64_t *)(page + (rank ? 0 : HOP_LINE));
    atomic_store(hop->mine, 0);
    return 0;
}

static inline int hop_cmp(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One-way nanoseconds, the median of short batches; both ranks call, rank 0 gets the result. */
static inline double hop_measure(Hop *hop, int rank)
{
    double batch[HOP_BATCHES];
    uint64_t end = hop->next + HOP_BATCHES * HOP_ROUNDS;
    if (!hop->mine)
        return -1;
    if (rank == 1) {
        while (hop->next < end) {
            hop->next++;
            while (atomic_load_explicit(hop->theirs, memory_order_acquire) < hop->next)
                ;
            atomic_store_explicit(hop->mine, hop->next, memory_order_release);
        }
        return -1;
    }
    for (int b = 0; b < HOP_BATCHES; b++) {
        double t = now_s();
        for (int i = 0; i < HOP_ROUNDS; i++) {
            atomic_store_explicit(hop->mine, ++hop->next, memory_order_release);
            while (atomic_load_explicit(hop->theirs, memory_order_acquire) < hop->next)
                ;
        }
        batch[b] = (now_s() - t) / (2 * HOP_ROUNDS) * 1e9;
    }
    qsort(batch, HOP_BATCHES, sizeof *batch, hop_cmp);
    return batch[HOP_BATCHES / 2];
}

/* The bounds separate SMT siblings, cores with a common L3, and different chiplets on the
 * development machine; the raw hop is printed beside the class. */
static inline const char *hop_class(double before, double after)
{
    if (before < 0)
        return "unknown";
    int a = before < 35 ? 0 : before < 100 ? 1 : 2, b = after < 35 ? 0 : after < 100 ? 1 : 2;
    static const char *const names[] = {"smt", "near", "far"};
    return a == b ? names[a] : "changed";
}

#endif
