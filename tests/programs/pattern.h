/* The expected bytes of test messages: a function of (src, dst, seq, offset), so that a wrong byte
 * identifies itself. No MPI in here. */
#ifndef MARLINE_PATTERN_H
#define MARLINE_PATTERN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* splitmix64's finaliser: every input bit reaches every output bit. */
static inline uint64_t mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static inline uint64_t pattern_key(int src, int dst, uint64_t seq, uint64_t seed)
{
    uint64_t ends = ((uint64_t)(uint32_t)src << 32) | (uint32_t)dst;
    return mix64(mix64(ends + 0x9e3779b97f4a7c15ull) ^ mix64(seq + 1) ^ seed);
}

/* Word i of a message. Cheaper than mix64, for messages of 64 MiB: one multiplication spreads the
 * index, so that words differ between offsets, messages and pairs. */
static inline uint64_t pattern_word(uint64_t key, uint64_t i)
{
    uint64_t x = (key + i) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 29);
}

static inline void pattern_fill(void *buf, size_t len, uint64_t key)
{
    unsigned char *p = buf;
    size_t words = len / 8;
    for (size_t i = 0; i < words; i++) {
        uint64_t w = pattern_word(key, i);
        memcpy(p + 8 * i, &w, 8);
    }
    uint64_t w = pattern_word(key, words);
    memcpy(p + 8 * words, &w, len % 8);
}

/* Returns the number of wrong bytes; *first is the offset of the first. */
static inline size_t pattern_check(const void *buf, size_t len, uint64_t key, size_t *first)
{
    const unsigned char *p = buf;
    size_t wrong = 0;
    for (size_t at = 0; at < len; at += 8) {
        uint64_t want = pattern_word(key, at / 8), got = 0;
        size_t n = len - at < 8 ? len - at : 8;
        memcpy(&got, p + at, n);
        if (n < 8)
            want &= (1ull << (8 * n)) - 1; /* little endian: the first n bytes */
        if (got == want)
            continue;
        for (size_t b = 0; b < n; b++) {
            if (((got ^ want) >> (8 * b)) & 0xff) {
                if (wrong++ == 0)
                    *first = at + b;
            }
        }
    }
    return wrong;
}

static inline double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

#endif
