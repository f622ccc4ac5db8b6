/* SPANK plug-in of Slurm: `srun --marline ./app`, `srun --marline=/opt/mpich ./app`.
 *
 * Each rank gets what `marline env` prints for the MPI: an mpiexec (the first on the job's PATH, if none
 * is named) or the directory of an MPI. Jobs without the option stay as they are. All ranks of a step get
 * a key that srun makes, unless FI_MARLINE_KEY, FI_MARLINE_KEY_FILE or FI_MARLINE_AUTH is set: in their
 * environment, never in a command line.
 *
 *   gcc -shared -fPIC -Wall -o spank_marline.so spank_marline.c         (libslurm-dev)
 *   plugstack.conf: required /usr/lib/slurm/spank_marline.so [PATH OF THE COMMAND marline]
 */
#define _GNU_SOURCE
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(marline, 1)

/* Carries the key to the step: `--export` keeps back all variables but SLURM_*. */
#define CARRIED "SLURM_MARLINE_KEY"
#define KEY "FI_MARLINE_KEY"
enum { KEY_BYTES = 32 };

static char *mpi;

static int note_mpi(int value, const char *word, int remote) {
    (void)value, (void)remote;
    free(mpi);
    mpi = strdup(word && *word ? word : "mpiexec");
    return mpi ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

static struct spank_option option = {
    "marline", "MPI", "Carry the job's messages by Marline (MPI: its mpiexec or directory).", 2, 0, note_mpi,
};

int slurm_spank_init(spank_t task, int count, char **words) {
    (void)count, (void)words;
    return spank_option_register(task, &option);
}

/* In srun, before it takes its environment for the step: makes the step's key, or hands on the job's. */
int slurm_spank_init_post_opt(spank_t task, int count, char **words) {
    unsigned char bytes[KEY_BYTES];
    char text[2 * KEY_BYTES + 1];
    (void)task, (void)count, (void)words;
    if (!mpi || spank_context() != S_CTX_LOCAL)
        return 0;
    unsetenv(CARRIED); /* of an outer step */
    if (getenv(KEY))
        return setenv(CARRIED, getenv(KEY), 1);
    if (getenv("FI_MARLINE_KEY_FILE") || getenv("FI_MARLINE_AUTH"))
        return 0;
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        slurm_error("marline: no random bytes for the step's key");
        return -1;
    }
    for (int at = 0; at < KEY_BYTES; at++)
        snprintf(text + 2 * at, 3, "%02x", bytes[at]);
    int failed = setenv(CARRIED, text, 1);
    explicit_bzero(bytes, sizeof(bytes));
    explicit_bzero(text, sizeof(text));
    return failed;
}

/* Gives the rank the step's key, unless the job has its own. */
static int hand_on_key(spank_t task) {
    char text[2 * KEY_BYTES + 1], own[2];
    if (spank_getenv(task, CARRIED, text, sizeof(text)) != ESPANK_SUCCESS)
        return 0;
    int given = 0;
    const char *names[] = {KEY, "FI_MARLINE_KEY_FILE", "FI_MARLINE_AUTH"};
    for (int at = 0; at < 3; at++)
        given |= spank_getenv(task, names[at], own, sizeof(own)) != ESPANK_ENV_NOEXIST;
    int wrong = !given && spank_setenv(task, KEY, text, 1) != ESPANK_SUCCESS;
    explicit_bzero(text, sizeof(text));
    return wrong | (spank_unsetenv(task, CARRIED) != ESPANK_SUCCESS);
}

/* Starts `marline env` in the environment of the job, which settings of the user are in. */
static FILE *start(const char *command, char **environment, pid_t *child) {
    int ends[2];
    if (pipe(ends) != 0)
        return NULL;
    *child = fork();
    if (*child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execvpe(command, (char *[]){"marline", "env", "--mpi", mpi, NULL}, environment);
        _exit(127);
    }
    close(ends[1]);
    if (*child < 0) {
        close(ends[0]);
        return NULL;
    }
    return fdopen(ends[0], "r");
}

/* In the process of the rank, as its user. A failure ends the rank, which would otherwise use another
 * transport. */
int slurm_spank_task_init(spank_t task, int count, char **words) {
    char **environment = NULL, *line = NULL;
    size_t room = 0;
    ssize_t length;
    pid_t child;
    int status = -1;
    if (!mpi)
        return 0;
    if (hand_on_key(task)) {
        slurm_error("marline: the step's key could not be set");
        return -1;
    }
    if (spank_get_item(task, S_JOB_ENV, &environment) != ESPANK_SUCCESS)
        return -1;
    const char *command = count > 0 ? words[0] : "marline";
    FILE *printed = start(command, environment, &child);
    if (!printed)
        return -1;
    int wrong = 0;
    while ((length = getline(&line, &room, printed)) > 0) {
        char *value = strchr(line, '=');
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        if (!value)
            continue;
        *value = '\0';
        wrong |= spank_setenv(task, line, value + 1, 1) != ESPANK_SUCCESS;
    }
    free(line);
    fclose(printed);
    if (waitpid(child, &status, 0) != child || status != 0 || wrong) {
        slurm_error("marline: `%s env --mpi %s` failed", command, mpi);
        return -1;
    }
    return 0;
}
