/* The first process of a pod's sandbox and of the cluster's own process namespace: it ends on
 * SIGTERM and SIGINT and takes up the processes that lost their parent. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal_number) {
    (void)signal_number;
    _exit(0);
}

static void reap(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction leaving = {.sa_handler = leave};
    struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGTERM, &leaving, 0);
    sigaction(SIGINT, &leaving, 0);
    sigaction(SIGCHLD, &reaping, 0);
    for (;;) {
        pause();
    }
}
