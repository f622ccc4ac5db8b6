/* A fake libibverbs with devices described by a file, for features that no emulated device
 * has (two ports, InfiniBand, all events). Sends land at once in the destination queue pair, which
 * must be of this process; remote reads and writes do nothing.
 *
 * The folder STAND_IN has two files. `ports`, read at each query, has a line for each port:
 *     DEVICE PORT STATE LAYER LID PKEY INDEX GID
 * (numbers as in verbs; PKEY and GID in hexadecimal digits; a GID of zeros means none; a device
 * whose STATE is 0 cannot be opened; without the file there are no verbs). Each port has the second
 * P_Key 8005. `events` grows by lines `TYPE WHICH`, which all open devices report: WHICH is a port or a
 * queue pair number. The fake writes a third file, `marks`: `pkey PLACE` for each queue pair, and
 * `path CLASS LEVEL` for each address handle and each connection. */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr_iova

enum { DEVICES = 8, PAIRS = 256, DEPTH = 8192, GIDS = 8 };

struct open_device {
    struct ibv_context verbs;
    long heard; /* bytes read of `events` */
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    int broken;
    unsigned violations; /* datagrams with another Q_Key */
};

struct queue {
    struct ibv_cq verbs;
    struct ibv_wc ring[DEPTH];
    unsigned head, tail;
};

struct receives {
    struct ibv_srq verbs;
    uint64_t name[DEPTH];
    struct ibv_sge place[DEPTH];
    unsigned head, tail;
};

struct pair {
    struct ibv_qp verbs;
    struct receives *receives;
    uint32_t peer, qkey;
    uint8_t port;
    int failed; /* in error: no sends, no receives and no completions */
};

struct port {
    char device[64], gid[33];
    unsigned number, state, layer, lid, pkey, index;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_device devices[DEVICES];
static struct pair *pairs[PAIRS];
static unsigned made;

static FILE *open_file(const char *name, const char *how)
{
    char path[4096];
    const char *folder = getenv("STAND_IN");
    snprintf(path, sizeof(path), "%s/%s", folder ? folder : ".", name);
    return fopen(path, how);
}

static FILE *file(const char *name) { return open_file(name, "re"); }

static void mark(const char *what, unsigned number, int also)
{
    FILE *marks = open_file("marks", "ae");
    if (!marks)
        return;
    fprintf(marks, also < 0 ? "%s %u\n" : "%s %u %d\n", what, number, also);
    fclose(marks);
}

static void mark_path(const struct ibv_ah_attr *attr)
{
    mark("path", attr->grh.traffic_class, attr->sl);
}

/* Calls `f` with each port until it returns nonzero. */
static int each_port(int (*f)(const struct port *, void *), void *with)
{
    struct port p;
    int done = 0;
    FILE *ports = file("ports");
    while (ports && !done && fscanf(ports, "%63s %u %u %u %u %x %u %32s", p.device, &p.number,
               &p.state, &p.layer, &p.lid, &p.pkey, &p.index, p.gid) == 8)
        done = f(&p, with);
    if (ports)
        fclose(ports);
    return ports ? done : -1;
}

static int add_device(const struct port *p, void *count)
{
    int *n = count, at = 0;
    while (at < *n && strcmp(devices[at].name, p->device))
        at++;
    if (at == *n && at < DEVICES)
        strcpy(devices[(*n)++].name, p->device);
    return 0;
}

struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));
    *count = 0;
    if (each_port(add_device, count) < 0) {
        free(list);
        errno = ENOSYS;
        return NULL;
    }
    for (int at = 0; at < *count; at++)
        list[at] = &devices[at];
    return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

struct question {
    const char *device;
    unsigned port;
    struct port found;
    unsigned ports;
};

static int is_it(const struct port *p, void *with)
{
    struct question *q = with;
    if (strcmp(p->device, q->device))
        return 0;
    q->ports = p->number > q->ports ? p->number : q->ports;
    if (q->port == 0 || p->number == q->port)
        q->found = *p;
    return 0;
}

static struct question ask(struct ibv_context *context, unsigned port)
{
    struct question q = { .device = context->device->name, .port = port };
    each_port(is_it, &q);
    return q;
}

static int broken(struct ibv_context *context)
{
    return ((struct open_device *)context)->broken;
}

static int poll(struct ibv_cq *cq, int room, struct ibv_wc *into)
{
    struct queue *q = (struct queue *)cq;
    int count = 0;
    if (broken(cq->context))
        return -1;
    pthread_mutex_lock(&lock);
    while (count < room && q->head != q->tail)
        into[count++] = q->ring[q->head++ % DEPTH];
    pthread_mutex_unlock(&lock);
    return count;
}

static int notify(struct ibv_cq *cq, int solicited) { return (void)cq, (void)solicited, 0; }

static void complete(struct ibv_cq *cq, struct ibv_wc wc)
{
    struct queue *q = (struct queue *)cq;
    q->ring[q->tail++ % DEPTH] = wc;
}

static int receive(struct receives *to, struct ibv_recv_wr *wr)
{
    pthread_mutex_lock(&lock);
    for (; wr; wr = wr->next, to->tail++) {
        to->name[to->tail % DEPTH] = wr->wr_id;
        to->place[to->tail % DEPTH] = *wr->sg_list;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return (void)bad, receive(((struct pair *)qp)->receives, wr);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return (void)bad, receive((struct receives *)srq, wr);
}

static struct pair *pair_of(uint32_t number)
{
    return number < PAIRS ? pairs[number] : NULL;
}

/* Delivers a send. A datagram needs the Q_Key of its destination. */
static void land(struct pair *from, struct pair *to, const struct ibv_send_wr *wr)
{
    struct receives *slots = to->receives;
    unsigned route = to->verbs.qp_type == IBV_QPT_UD ? 40 : 0;
    if (route && wr->wr.ud.remote_qkey != to->qkey) {
        ((struct open_device *)to->verbs.context)->violations++;
        return;
    }
    if (to->failed || slots->head == slots->tail)
        return;
    unsigned slot = slots->head++ % DEPTH, len = wr->num_sge ? wr->sg_list->length : 0;
    if (len)
        memcpy((char *)slots->place[slot].addr + route, (void *)wr->sg_list->addr, len);
    complete(to->verbs.recv_cq, (struct ibv_wc){ .wr_id = slots->name[slot],
        .opcode = IBV_WC_RECV, .byte_len = len + route, .qp_num = to->verbs.qp_num,
        .src_qp = from->verbs.qp_num });
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct pair *from = (struct pair *)qp;
    (void)bad;
    pthread_mutex_lock(&lock);
    for (; wr && !from->failed; wr = wr->next) {
        int datagram = qp->qp_type == IBV_QPT_UD;
        struct pair *to = pair_of(datagram ? wr->wr.ud.remote_qpn : from->peer);
        if (to)
            land(from, to, wr);
        if (wr->send_flags & IBV_SEND_SIGNALED)
            complete(qp->send_cq, (struct ibv_wc){ .wr_id = wr->wr_id, .qp_num = qp->qp_num });
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct open_device *open = calloc(1, sizeof(*open));
    open->verbs.device = device;
    if (ask(&open->verbs, 0).found.state == 0) {
        free(open);
        errno = EACCES;
        return NULL;
    }
    FILE *events = file("events"); /* earlier events are skipped */
    if (events) {
        fseek(events, 0, SEEK_END);
        open->heard = ftell(events);
        fclose(events);
    }
    open->verbs.async_fd = eventfd(0, EFD_CLOEXEC);
    open->verbs.ops.poll_cq = poll;
    open->verbs.ops.req_notify_cq = notify;
    open->verbs.ops.post_send = post_send;
    open->verbs.ops.post_recv = post_recv;
    open->verbs.ops.post_srq_recv = post_srq_recv;
    return &open->verbs;
}

int ibv_close_device(struct ibv_context *context)
{
    close(context->async_fd);
    free(context);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    memset(attr, 0, sizeof(*attr));
    strcpy(attr->fw_ver, "1.2.3");
    attr->max_qp_wr = attr->max_srq_wr = 4096;
    attr->max_cqe = DEPTH;
    attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 16;
    attr->phys_port_cnt = ask(context, 0).ports;
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *into)
{
    struct ibv_port_attr *attr = (struct ibv_port_attr *)into;
    struct port p = ask(context, port).found;
    if (p.state == 0)
        return EINVAL;
    attr->state = p.state;
    attr->active_mtu = attr->max_mtu = IBV_MTU_4096;
    attr->gid_tbl_len = GIDS;
    attr->pkey_tbl_len = 2;
    attr->max_msg_sz = 1 << 30;
    attr->lid = p.lid;
    attr->qkey_viol_cntr = ((struct open_device *)context)->violations;
    attr->active_width = 2;
    attr->active_speed = 32;
    attr->link_layer = p.layer;
    return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    struct port p = ask(context, port).found;
    memset(gid, 0, sizeof(*gid));
    if (p.state == 0 || index >= GIDS)
        return errno = EINVAL, -1;
    for (int at = 0; at < 16 && (int)p.index == index; at++) {
        unsigned byte = 0;
        sscanf(p.gid + 2 * at, "%2x", &byte);
        gid->raw[at] = byte;
    }
    return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
    struct port p = ask(context, port).found;
    unsigned key = index == 0 ? p.pkey : 0x8005;
    if (p.state == 0 || index > 1)
        return errno = EINVAL, -1;
    *pkey = key >> 8 | (key & 0xff) << 8;
    return 0;
}

/* Fills in the event of a line, if it concerns this open device. */
static int is_of(struct open_device *open, unsigned type, unsigned which,
    struct ibv_async_event *event)
{
    event->event_type = type;
    switch (type) {
    case IBV_EVENT_QP_FATAL ... IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
        struct pair *pair = pair_of(which);
        if (!pair || pair->verbs.context != &open->verbs)
            return 0;
        event->element.qp = &pair->verbs;
        pair->failed |= type <= IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_QP_LAST_WQE_REACHED;
        return 1;
    }
    case IBV_EVENT_DEVICE_FATAL:
        open->broken = 1;
        return 1;
    case IBV_EVENT_CQ_ERR:
        event->element.cq = open->cq;
        open->broken = 1;
        return open->cq != NULL;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        event->element.srq = open->srq;
        return open->srq != NULL;
    default:
        event->element.port_num = which;
        return 1;
    }
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    struct open_device *open = (struct open_device *)context;
    unsigned type, which;
    int found = 0;
    FILE *events = file("events");
    if (events && fseek(events, open->heard, SEEK_SET) == 0)
        while (!found && fscanf(events, "%u %u\n", &type, &which) == 2) {
            open->heard = ftell(events);
            pthread_mutex_lock(&lock);
            found = is_of(open, type, which, event);
            pthread_mutex_unlock(&lock);
        }
    if (events)
        fclose(events);
    errno = EAGAIN;
    return found ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof(*pd));
    pd->context = context;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd) { return free(pd), 0; }

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access)
{
    (void)pd, (void)addr, (void)len, (void)iova, (void)access;
    return calloc(1, sizeof(struct ibv_mr));
}

int ibv_dereg_mr(struct ibv_mr *mr) { return free(mr), 0; }

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC);
    return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    free(channel);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int depth, void *name,
    struct ibv_comp_channel *channel, int vector)
{
    struct queue *queue = calloc(1, sizeof(*queue));
    (void)depth, (void)name, (void)channel, (void)vector;
    queue->verbs.context = context;
    return ((struct open_device *)context)->cq = &queue->verbs;
}

int ibv_destroy_cq(struct ibv_cq *cq) { return free(cq), 0; }

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **name)
{
    return (void)channel, (void)cq, (void)name, errno = EAGAIN, -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) { (void)cq, (void)count; }

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct receives *receives = calloc(1, sizeof(*receives));
    (void)attr;
    receives->verbs.context = pd->context;
    return ((struct open_device *)pd->context)->srq = &receives->verbs;
}

int ibv_destroy_srq(struct ibv_srq *srq) { return free(srq), 0; }

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct pair *pair = calloc(1, sizeof(*pair));
    pthread_mutex_lock(&lock);
    unsigned number = 2 + made++ % (PAIRS - 2); /* a test makes fewer */
    pairs[number] = pair;
    pthread_mutex_unlock(&lock);
    pair->verbs.context = pd->context;
    pair->verbs.pd = pd;
    pair->verbs.send_cq = attr->send_cq;
    pair->verbs.recv_cq = attr->recv_cq;
    pair->verbs.srq = attr->srq;
    pair->verbs.qp_num = number;
    pair->verbs.qp_type = attr->qp_type;
    pair->receives = attr->srq ? (struct receives *)attr->srq : calloc(1, sizeof(struct receives));
    return &pair->verbs;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct pair *pair = (struct pair *)qp;
    if (broken(qp->context))
        return EIO;
    pthread_mutex_lock(&lock);
    if (mask & IBV_QP_PORT)
        pair->port = attr->port_num;
    if (mask & IBV_QP_PKEY_INDEX)
        mark("pkey", attr->pkey_index, -1);
    if (mask & IBV_QP_AV)
        mark_path(&attr->ah_attr);
    if (mask & IBV_QP_DEST_QPN)
        pair->peer = attr->dest_qp_num;
    if (mask & IBV_QP_QKEY)
        pair->qkey = attr->qkey;
    if (attr->qp_state == IBV_QPS_RESET)
        pair->failed = 0;
    if (attr->qp_state == IBV_QPS_RESET && !qp->srq)
        pair->receives->head = pair->receives->tail;
    pthread_mutex_unlock(&lock);
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    struct pair *pair = (struct pair *)qp;
    pthread_mutex_lock(&lock);
    pairs[qp->qp_num] = NULL;
    pthread_mutex_unlock(&lock);
    if (!qp->srq)
        free(pair->receives);
    free(pair);
    return 0;
}

/* Requires a GID that is in the table at present. */
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct port p = ask(pd->context, attr->port_num).found;
    static const char none[33] = "00000000000000000000000000000000";
    if (attr->is_global && (attr->grh.sgid_index != p.index || !strcmp(p.gid, none))) {
        errno = EINVAL;
        return NULL;
    }
    mark_path(attr);
    return calloc(1, sizeof(struct ibv_ah));
}

int ibv_destroy_ah(struct ibv_ah *ah) { return free(ah), 0; }

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    return (void)qp, (void)gid, (void)lid, 0;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    return (void)qp, (void)gid, (void)lid, 0;
}
