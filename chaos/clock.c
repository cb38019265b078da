/* Shifts the wall clock of a process by the seconds that the file $CHAOS_CLOCK contains as an int64, at any time.
 *
 * Only CLOCK_REALTIME is shifted. Monotonic clocks stay, as when an administrator or NTP sets the clock. Absolute waits
 * until a shifted time are translated when they begin, so a wait that is in progress is neither cut short nor extended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *seconds;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) seconds = page;
}

static int64_t shift(void) { return seconds ? *seconds : 0; }

#define NEXT(name) ((__typeof__(&name))next(#name))
static void *next(const char *name) {
    void *found = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2"); /* the default version of pthread_cond_timedwait */
    return found ? found : dlsym(RTLD_NEXT, name);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static __typeof__(&clock_gettime) real;
    if (!real) real = NEXT(clock_gettime);
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static __typeof__(&gettimeofday) real;
    if (!real) real = NEXT(gettimeofday);
    int result = real(now, zone);
    if (result == 0) now->tv_sec += shift();
    return result;
}

time_t time(time_t *stored) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (stored) *stored = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *now, int base) {
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

/* Small absolute times are monotonic ones. */
static struct timespec true_time(const struct timespec *until) {
    struct timespec found = *until;
    if (found.tv_sec > 1000000000) found.tv_sec -= shift();
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static __typeof__(&pthread_cond_timedwait) real;
    if (!real) real = NEXT(pthread_cond_timedwait);
    struct timespec at = true_time(until);
    return real(cond, mutex, &at);
}

/* The C library calls its own pthread_cond_timedwait in here, not the one above. librdkafka waits in this way. */
int cnd_timedwait(cnd_t *restrict cond, mtx_t *restrict mutex, const struct timespec *restrict until) {
    static __typeof__(&cnd_timedwait) real;
    if (!real) real = NEXT(cnd_timedwait);
    struct timespec at = true_time(until);
    return real(cond, mutex, &at);
}

int mtx_timedlock(mtx_t *restrict mutex, const struct timespec *restrict until) {
    static __typeof__(&mtx_timedlock) real;
    if (!real) real = NEXT(mtx_timedlock);
    struct timespec at = true_time(until);
    return real(mutex, &at);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    static __typeof__(&pthread_mutex_timedlock) real;
    if (!real) real = NEXT(pthread_mutex_timedlock);
    struct timespec at = true_time(until);
    return real(mutex, &at);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static __typeof__(&sem_timedwait) real;
    if (!real) real = NEXT(sem_timedwait);
    struct timespec at = true_time(until);
    return real(semaphore, &at);
}
