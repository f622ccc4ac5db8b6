/* SPANK plug-in of Slurm: `srun --marline ./app`, `srun --marline=/opt/mpich ./app`.
 *
 * Each rank gets what `marline env` prints for the MPI: an mpiexec (the first on the job's PATH, if none
 * is named) or the directory of an MPI. Jobs without the option stay as they are.
 *
 *   gcc -shared -fPIC -Wall -o spank_marline.so spank_marline.c         (libslurm-dev)
 *   plugstack.conf: required /usr/lib/slurm/spank_marline.so [PATH OF THE COMMAND marline]
 */
#define _GNU_SOURCE
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(marline, 1)

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
