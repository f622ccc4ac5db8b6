/* A replacement of libibverbs that presents the devices rxe0 and rxe1 as the two ports of one device,
 * two0. Calls about the device go to the real library with the port's device; all others go to the
 * real library directly. A context belongs to the port that was queried last, as Marline uses
 * contexts; it receives the events of both. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#undef ibv_get_device_list
#undef ibv_query_port

#define REAL(name) ((__typeof__(&name))real(#name))

struct both {
    struct ibv_context verbs;
    struct ibv_context *of[2];
    unsigned port;
};

static struct ibv_device two;

static void *real(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen(LIBRARY, RTLD_NOW);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found)
        abort();
    return found;
}

static struct ibv_context *of(struct ibv_context *context, unsigned port)
{
    return ((struct both *)context)->of[(port - 1) & 1];
}

static struct ibv_context *one(struct ibv_context *context)
{
    return of(context, ((struct both *)context)->port);
}

struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = calloc(2, sizeof(*list));
    strcpy(two.name, "two0");
    list[0] = &two;
    *count = 1;
    return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    int count = 0;
    struct both *both = calloc(1, sizeof(*both));
    struct ibv_device **list = REAL(ibv_get_device_list)(&count);
    both->verbs.device = device;
    both->port = 1;
    both->verbs.async_fd = epoll_create1(EPOLL_CLOEXEC);
    for (int at = 0; at < count; at++) {
        const char *name = REAL(ibv_get_device_name)(list[at]);
        if (strncmp(name, "rxe", 3) || (unsigned)(name[3] - '0') > 1)
            continue;
        struct ibv_context *open = both->of[name[3] - '0'] = REAL(ibv_open_device)(list[at]);
        struct epoll_event readable = { .events = EPOLLIN };
        fcntl(open->async_fd, F_SETFL, O_NONBLOCK);
        epoll_ctl(both->verbs.async_fd, EPOLL_CTL_ADD, open->async_fd, &readable);
    }
    REAL(ibv_free_device_list)(list);
    return &both->verbs;
}

int ibv_close_device(struct ibv_context *context)
{
    struct both *both = (struct both *)context;
    close(context->async_fd);
    for (int at = 0; at < 2; at++)
        REAL(ibv_close_device)(both->of[at]);
    free(both);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    int failed = REAL(ibv_query_device)(one(context), attr);
    attr->phys_port_cnt = 2;
    return failed;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    ((struct both *)context)->port = port;
    return REAL(ibv_query_port)(one(context), 1, attr);
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    return REAL(ibv_query_gid)(of(context, port), 1, index, gid);
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
    return REAL(ibv_query_pkey)(of(context, port), 1, index, pkey);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct both *both = (struct both *)context;
    for (int at = 0; at < 2; at++) {
        if (REAL(ibv_get_async_event)(both->of[at], event))
            continue;
        switch (event->event_type) {
        case IBV_EVENT_PORT_ACTIVE ... IBV_EVENT_SM_CHANGE:
        case IBV_EVENT_CLIENT_REREGISTER:
        case IBV_EVENT_GID_CHANGE:
            event->element.port_num = at + 1;
            break;
        default:
            break;
        }
        return 0;
    }
    errno = EAGAIN;
    return -1;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    return REAL(ibv_alloc_pd)(one(context));
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    return REAL(ibv_create_comp_channel)(one(context));
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int depth, void *name,
    struct ibv_comp_channel *channel, int vector)
{
    return REAL(ibv_create_cq)(one(context), depth, name, channel, vector);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr mine = *attr;
    mine.port_num = mine.ah_attr.port_num = 1;
    return REAL(ibv_modify_qp)(qp, &mine, mask);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct ibv_ah_attr mine = *attr;
    mine.port_num = 1;
    return REAL(ibv_create_ah)(pd, &mine);
}
