/* A reader that polls its window, and stores there after the last word of a put appeared.
 *
 *   polled [--puts N] [--bytes N] [--skew N] [--flag put | add]
 *
 * Rank 0 puts `bytes` bytes, `skew` bytes from the start of rank 1's window, and flushes. Rank 1
 * polls the word written last (in every second put without calling MPI), checks that the earlier
 * bytes are there, and overwrites all of them; after rank 0's flush its values must still be there.
 * Prints
 *
 *   polled puts=N bytes=N early=N comebacks=N
 *
 * With --flag, each put is followed by a put of the word behind it, or by an accumulate that adds one to
 * it, without a flush in between; rank 1 polls this word alone. (MPI promises no such order; Marline does
 * for short puts and atomics. By the window's hints MPICH's accumulates are atomics of the network.)
 *
 * early: puts whose last word (or flag) appeared before their other bytes; comebacks: puts that stored bytes
 * afterwards. */
#include "pattern.h"
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLLS_TO_YIELD = 64, OWN = 0xee };

static int rank, count = 300;
static size_t bytes = 65536, skew = 0;
static enum { NO_FLAG, FLAG_PUT, FLAG_ADD } flag;

/* Where the flag is: the first word after the put. */
static size_t flag_at(void)
{
    return (skew + bytes + 7) & ~(size_t)7;
}

static void poll_flag(const volatile long *at, long wanted, int calls)
{
    for (long n = 1; *at != wanted; n++) {
        int arrived;
        if (calls)
            MPI_Iprobe(0, 1, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
        if (n % POLLS_TO_YIELD == 0)
            sched_yield();
    }
    __sync_synchronize();
}

/* The word with the last byte, limited to the put's bytes. */
static size_t last_word(size_t address)
{
    size_t word = (address + bytes - 1) & ~(size_t)7;
    return word > address ? word - address : 0;
}

static int seen(const volatile unsigned char *at, const unsigned char *wanted, size_t from)
{
    for (size_t i = bytes; i > from; i--)
        if (at[i - 1] != wanted[i - 1])
            return 0;
    return 1;
}

static void poll(const unsigned char *at, const unsigned char *wanted, int calls)
{
    size_t from = last_word((size_t)at);
    for (long n = 1; !seen(at, wanted, from); n++) {
        int flag;
        if (calls)
            MPI_Iprobe(0, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        if (n % POLLS_TO_YIELD == 0)
            sched_yield();
    }
    __sync_synchronize();
}

static int differs(const unsigned char *at, int value)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != value)
            return 1;
    return 0;
}

static void write_all(MPI_Win win, unsigned char *from)
{
    for (int i = 0; i < count; i++) {
        pattern_fill(from, bytes, pattern_key(0, 1, i, 1));
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Put(from, bytes, MPI_BYTE, 1, skew, bytes, MPI_BYTE, win);
        const long value = i + 1, one = 1;
        if (flag == FLAG_ADD)
            MPI_Accumulate(&one, 1, MPI_LONG, 1, flag_at(), 1, MPI_LONG, MPI_SUM, win);
        else if (flag == FLAG_PUT)
            MPI_Put(&value, 1, MPI_LONG, 1, flag_at(), 1, MPI_LONG, win);
        MPI_Win_flush(1, win);
        MPI_Send(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    }
}

static void read_all(unsigned char *window, unsigned char *wanted)
{
    int early = 0, comebacks = 0;
    unsigned char *at = window + skew;
    for (int i = 0; i < count; i++) {
        memset(at, 0, bytes);
        __sync_synchronize();
        pattern_fill(wanted, bytes, pattern_key(0, 1, i, 1));
        MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        if (flag)
            poll_flag((long *)(window + flag_at()), i + 1, i % 2);
        else
            poll(at, wanted, i % 2);
        early += memcmp(at, wanted, bytes) != 0;
        memset(at, OWN, bytes);
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        comebacks += differs(at, OWN);
    }
    printf("polled puts=%d bytes=%zu early=%d comebacks=%d\n", count, bytes, early, comebacks);
}

int main(int argc, char **argv)
{
    MPI_Win win;
    unsigned char *window, *other;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--puts"))
            count = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--bytes"))
            bytes = strtoull(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--skew"))
            skew = strtoull(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--flag"))
            flag = !strcmp(argv[i + 1], "add") ? FLAG_ADD : FLAG_PUT;
    }
    other = malloc(bytes);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "accumulate_ops", "same_op");
    MPI_Info_set(info, "disable_shm_accumulate", "true");
    MPI_Win_allocate(flag_at() + sizeof(long), 1, info, MPI_COMM_WORLD, &window, &win);
    MPI_Info_free(&info);
    memset(window, 0, flag_at() + sizeof(long));
    MPI_Win_lock_all(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        write_all(win, other);
    else if (rank == 1)
        read_all(window, other);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    free(other);
    MPI_Finalize();
    return 0;
}
