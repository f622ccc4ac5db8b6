/* Preloaded into a process whose library calls the kernel by syscall(): counts socket calls, and
 * prints the numbers at the end on standard error:
 *
 *   calls SENT READ
 *   pulls CALLS
 *
 * SENT: calls that sent something. READ: calls that received something; polls that found nothing are
 * left out. CALLS: reads of another process's memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>

static long sent, read_, pulls;

long syscall(long number, ...)
{
    static long (*next)(long, ...);
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (!next)
        next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    long result = next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_sendto || number == SYS_sendmsg || number == SYS_sendmmsg)
        sent += result >= 0;
    else if (number == SYS_recvfrom || number == SYS_recvmsg || number == SYS_recvmmsg)
        read_ += result >= 0;
    pulls += number == SYS_process_vm_readv && result >= 0;
    return result;
}

__attribute__((destructor)) static void tell(void)
{
    fprintf(stderr, "calls %ld %ld\npulls %ld\n", sent, read_, pulls);
}
