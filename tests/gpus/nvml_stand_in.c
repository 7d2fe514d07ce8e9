/* A stand-in for NVIDIA's libnvidia-ml.so.1: answers from a text file that a test changes as it likes.
 *
 * The file that $NVML_STAND_IN names has lines "key=value"; it is read again whenever it was replaced.
 * Keys of GPU 0 begin with "0.", those of its second MIG device with "0.mig1.":
 *   devices=N                     how many GPUs
 *   error.FUNCTION=CODE           every call of FUNCTION fails; "error.*" all; "0.error..." on one device
 *   hang.FUNCTION=1               every call of FUNCTION comes back when the key is taken away
 *   0.uuid  0.name  0.memory_total  0.memory_used (bytes)  0.major  0.minor  0.power (milliwatts)
 *   0.ecc=0|1  0.ecc_double=N  0.remapped=C:U:PENDING:FAILED
 *   0.rate=PERCENT                utilisation of the last period
 *   0.samples=TIME:PERCENT,...    the buffer of samples; 0.use=PERCENT: six a second, for ever
 *   0.process_use=PID:PERCENT[:TIME],...   without TIME: now, for ever
 *   0.processes=PID:BYTES,...     0.graphics=PID:BYTES,...
 *   0.mig=N                       MIG is on, with N devices; 0.mig0.uuid, 0.mig0.gi, ...
 *   0.gpm=PERCENT                 GPM is supported; 0.mig0.gpm=PERCENT
 *   events=NUMBER:TYPE:DATA:GPU,...        delivered once to every set that is older; GPU -1 is unknown
 * A key that is not there answers as a device that does not support it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SHORT = 7,
       NO_DRIVER = 9, TIMEOUT = 10 };
enum { GPUS = 16, MIGS = 8, LONGEST = 1 << 16 };
#define PERIOD 166667ULL

typedef unsigned long long u64;
typedef struct { int gpu, mig; } device_t;
typedef struct { u64 last; } set_t;
typedef struct { double percent; int supported; } gpm_t;

static device_t handles[GPUS][MIGS + 1];
static char text[LONGEST];
static struct timespec read_at;
static ino_t read_from;
static int initialised, opened; /* as the driver holds its device while it is initialised */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void refresh(void) {
  const char *path = getenv("NVML_STAND_IN");
  struct stat found;
  if (!path || stat(path, &found)) { text[0] = 0; read_from = 0; return; }
  if (found.st_ino == read_from && found.st_mtim.tv_sec == read_at.tv_sec &&
      found.st_mtim.tv_nsec == read_at.tv_nsec) return;
  FILE *file = fopen(path, "r");
  if (!file) return;
  size_t size = fread(text, 1, LONGEST - 1, file);
  text[size] = 0;
  fclose(file);
  read_from = found.st_ino;
  read_at = found.st_mtim;
}

/* Copy the value of a key; whether it is there. */
static int value(char *into, size_t room, const char *form, ...) {
  char key[128];
  va_list words;
  va_start(words, form);
  int size = vsnprintf(key, sizeof key, form, words);
  va_end(words);
  int there = 0;
  pthread_mutex_lock(&lock);
  refresh();
  for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    if (strncmp(line, key, (size_t)size) || line[size] != '=') continue;
    snprintf(into, room, "%.*s", (int)strcspn(line + size + 1, "\n"), line + size + 1);
    there = 1;
    break;
  }
  pthread_mutex_unlock(&lock);
  return there;
}

static const char *prefix(const device_t *device, char *into) {
  if (device->mig < 0) snprintf(into, 32, "%d.", device->gpu);
  else snprintf(into, 32, "%d.mig%d.", device->gpu, device->mig);
  return into;
}

static int failure(const device_t *device, const char *function) {
  char found[32], where[32];
  if (!initialised && strcmp(function, "nvmlInit")) return UNINITIALIZED;
  while (value(found, sizeof found, "hang.%s", function)) usleep(10000);
  if (value(found, sizeof found, "error.%s", function) || value(found, sizeof found, "error.*")) return atoi(found);
  if (!device) return SUCCESS;
  prefix(device, where);
  if (value(found, sizeof found, "%serror.%s", where, function) || value(found, sizeof found, "%serror.*", where))
    return atoi(found);
  if (device->mig >= 0 && value(found, sizeof found, "%d.error.*", device->gpu)) return atoi(found);
  return SUCCESS;
}

static int number(const device_t *device, const char *key, u64 *into) {
  char found[64], where[32];
  if (!value(found, sizeof found, "%s%s", prefix(device, where), key)) return 0;
  *into = strtoull(found, NULL, 10);
  return 1;
}

static u64 microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (u64)now.tv_sec * 1000000ULL + (u64)now.tv_nsec / 1000;
}

static device_t *handle(int gpu, int mig) {
  device_t *found = &handles[gpu][mig + 1];
  found->gpu = gpu;
  found->mig = mig;
  return found;
}

/* Parse "a:b:c,..." into rows of three; missing numbers are 0. */
static unsigned rows(const char *from, u64 into[][3], unsigned most) {
  unsigned count = 0;
  while (*from && count < most) {
    char *end = (char *)from;
    for (int n = 0; n < 3; n++) {
      into[count][n] = strtoull(end, &end, 10);
      if (n < 2 && *end == ':') end++;
      else { for (n++; n < 3; n++) into[count][n] = 0; break; }
    }
    count++;
    from = *end == ',' ? end + 1 : end + strlen(end);
  }
  return count;
}

#define CHECK(device, function) do { int code = failure(device, function); if (code) return code; } while (0)

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  char found[16];
  CHECK(NULL, "nvmlInit");
  if (!value(found, sizeof found, "devices")) return NO_DRIVER;
  if (!initialised++) opened = open(getenv("NVML_STAND_IN"), O_RDONLY | O_CLOEXEC);
  return SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
  CHECK(NULL, "nvmlShutdown");
  if (!--initialised) close(opened);
  return SUCCESS;
}
const char *nvmlErrorString(int code) { (void)code; return "stand-in"; }

int nvmlSystemGetDriverVersion(char *into, unsigned room) {
  CHECK(NULL, "nvmlSystemGetDriverVersion");
  snprintf(into, room, "580.00-stand-in");
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  char found[16] = "0";
  CHECK(NULL, "nvmlDeviceGetCount");
  value(found, sizeof found, "devices");
  *count = (unsigned)atoi(found);
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
  unsigned count = 0;
  CHECK(NULL, "nvmlDeviceGetHandleByIndex");
  CHECK(handle((int)(index % GPUS), -1), "nvmlDeviceGetHandleByIndex");
  nvmlDeviceGetCount_v2(&count);
  if (index >= count || index >= GPUS) return INVALID;
  *device = handle((int)index, -1);
  return SUCCESS;
}

static int words(device_t *device, const char *function, const char *key, char *into, unsigned room) {
  char where[32];
  if (!device) return INVALID;
  CHECK(device, function);
  return value(into, room, "%s%s", prefix(device, where), key) ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetUUID(device_t *d, char *into, unsigned room) { return words(d, "nvmlDeviceGetUUID", "uuid", into, room); }
int nvmlDeviceGetName(device_t *d, char *into, unsigned room) { return words(d, "nvmlDeviceGetName", "name", into, room); }

int nvmlDeviceGetMemoryInfo(device_t *d, u64 *into) {
  CHECK(d, "nvmlDeviceGetMemoryInfo");
  into[0] = into[2] = 0;
  if (!number(d, "memory_total", &into[0])) return NOT_SUPPORTED;
  number(d, "memory_used", &into[2]);
  into[1] = into[0] - into[2];
  return SUCCESS;
}

static int integer(device_t *d, const char *function, const char *key, unsigned *into) {
  u64 found;
  CHECK(d, function);
  if (!number(d, key, &found)) return NOT_SUPPORTED;
  *into = (unsigned)found;
  return SUCCESS;
}
int nvmlDeviceGetPowerUsage(device_t *d, unsigned *into) { return integer(d, "nvmlDeviceGetPowerUsage", "power", into); }
int nvmlDeviceGetGpuInstanceId(device_t *d, unsigned *into) { return integer(d, "nvmlDeviceGetGpuInstanceId", "gi", into); }

int nvmlDeviceGetCudaComputeCapability(device_t *d, int *major, int *minor) {
  int code = integer(d, "nvmlDeviceGetCudaComputeCapability", "major", (unsigned *)major);
  return code ? code : integer(d, "nvmlDeviceGetCudaComputeCapability", "minor", (unsigned *)minor);
}

int nvmlDeviceGetEccMode(device_t *d, unsigned *now, unsigned *pending) {
  int code = integer(d, "nvmlDeviceGetEccMode", "ecc", now);
  *pending = *now;
  return code;
}

int nvmlDeviceGetTotalEccErrors(device_t *d, int kind, int counter, u64 *into) {
  (void)counter;
  CHECK(d, "nvmlDeviceGetTotalEccErrors");
  *into = 0;
  if (kind == 0) return SUCCESS;
  return number(d, "ecc_double", into) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetRemappedRows(device_t *d, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
  char found[64], where[32];
  CHECK(d, "nvmlDeviceGetRemappedRows");
  if (!value(found, sizeof found, "%sremapped", prefix(d, where))) return NOT_SUPPORTED;
  return sscanf(found, "%u:%u:%u:%u", a, b, pending, failed) == 4 ? SUCCESS : INVALID;
}

static int mig_is_on(device_t *d) { u64 found; return d->mig >= 0 || number(d, "mig", &found); }

int nvmlDeviceGetUtilizationRates(device_t *d, unsigned *into) {
  u64 found = 0;
  CHECK(d, "nvmlDeviceGetUtilizationRates");
  if (mig_is_on(d)) return NOT_SUPPORTED;
  if (!number(d, "rate", &found) && !number(d, "use", &found)) return NOT_SUPPORTED;
  into[0] = (unsigned)found;
  into[1] = 0;
  return SUCCESS;
}

typedef struct { u64 time; union { unsigned percent; double room; } value; } sample_t;

int nvmlDeviceGetSamples(device_t *d, int kind, u64 last, int *type, unsigned *count, sample_t *into) {
  static __thread u64 found[512][3];
  static __thread char line[8192];
  char where[32];
  u64 use;
  unsigned size = 0;
  CHECK(d, "nvmlDeviceGetSamples");
  if (kind != 1 || mig_is_on(d)) return NOT_SUPPORTED;
  if (value(line, sizeof line, "%ssamples", prefix(d, where))) {
    unsigned all = rows(line, found, 512);
    for (unsigned n = 0; n < all; n++)
      if (found[n][0] > last) { found[size][0] = found[n][0]; found[size++][1] = found[n][1]; }
  } else if (number(d, "use", &use)) {
    u64 now = microseconds() / PERIOD;
    for (u64 at = now - 60; at <= now; at++)
      if (at * PERIOD > last) { found[size][0] = at * PERIOD; found[size++][1] = use; }
  } else return NOT_SUPPORTED;
  if (!size) return NOT_FOUND;
  *type = 1;
  if (into) {
    if (*count < size) size = *count; /* one more came between the two calls */
    for (unsigned n = 0; n < size; n++) { into[n].time = found[n][0]; into[n].value.percent = (unsigned)found[n][1]; }
  }
  *count = size;
  return SUCCESS;
}

typedef struct { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; } process_use_t;

int nvmlDeviceGetProcessUtilization(device_t *d, process_use_t *into, unsigned *count, u64 last) {
  u64 found[64][3];
  char line[2048], where[32];
  unsigned size = 0;
  CHECK(d, "nvmlDeviceGetProcessUtilization");
  if (mig_is_on(d) || !value(line, sizeof line, "%sprocess_use", prefix(d, where))) return NOT_SUPPORTED;
  unsigned all = rows(line, found, 64);
  for (unsigned n = 0; n < all; n++) {
    u64 at = found[n][2] ? found[n][2] : microseconds() / PERIOD * PERIOD;
    if (at <= last) continue;
    if (into && size < *count) into[size] = (process_use_t){(unsigned)found[n][0], at, (unsigned)found[n][1], 0, 0, 0};
    size++;
  }
  if (!size) return NOT_FOUND;
  int room = into && *count >= size;
  *count = size;
  return room ? SUCCESS : SHORT;
}

typedef struct { unsigned pid; u64 memory; unsigned gi, ci; } process_t;

static int processes(device_t *d, const char *function, const char *key, unsigned *count, process_t *into) {
  u64 found[64][3];
  char line[2048] = "", where[32];
  CHECK(d, function);
  value(line, sizeof line, "%s%s", prefix(d, where), key);
  unsigned size = rows(line, found, 64);
  if (into && *count >= size)
    for (unsigned n = 0; n < size; n++) into[n] = (process_t){(unsigned)found[n][0], found[n][1], ~0u, ~0u};
  int room = !size || (into && *count >= size);
  *count = size;
  return room ? SUCCESS : SHORT;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *count, process_t *into) {
  return processes(d, "nvmlDeviceGetComputeRunningProcesses", "processes", count, into);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t *d, unsigned *count, process_t *into) {
  return processes(d, "nvmlDeviceGetGraphicsRunningProcesses", "graphics", count, into);
}

int nvmlDeviceGetMigMode(device_t *d, unsigned *now, unsigned *pending) {
  CHECK(d, "nvmlDeviceGetMigMode");
  *now = *pending = (unsigned)mig_is_on(d);
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(device_t *d, unsigned *count) {
  CHECK(d, "nvmlDeviceGetMaxMigDeviceCount");
  *count = mig_is_on(d) ? MIGS : 0;
  return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(device_t *d, unsigned index, device_t **into) {
  u64 count = 0;
  CHECK(d, "nvmlDeviceGetMigDeviceHandleByIndex");
  number(d, "mig", &count);
  if (index >= count || index >= MIGS) return NOT_FOUND;
  *into = handle(d->gpu, (int)index);
  return SUCCESS;
}

typedef struct { unsigned version, supported; } support_t;
typedef struct { unsigned id; int code; double value; char *names[3]; } metric_t;
typedef struct { unsigned version, count; gpm_t *first, *second; metric_t metrics[]; } metrics_t;

int nvmlGpmQueryDeviceSupport(device_t *d, support_t *into) {
  u64 found;
  CHECK(d, "nvmlGpmQueryDeviceSupport");
  into->supported = (unsigned)number(d, "gpm", &found);
  return SUCCESS;
}
int nvmlGpmSampleAlloc(gpm_t **into) {
  CHECK(NULL, "nvmlGpmSampleAlloc");
  *into = calloc(1, sizeof **into);
  return SUCCESS;
}
int nvmlGpmSampleFree(gpm_t *sample) { free(sample); return SUCCESS; }
int nvmlGpmSampleGet(device_t *d, gpm_t *into) {
  u64 found;
  CHECK(d, "nvmlGpmSampleGet");
  if (!number(d, "gpm", &found)) return NOT_SUPPORTED;
  into->percent = (double)found;
  return SUCCESS;
}
int nvmlGpmMigSampleGet(device_t *d, unsigned instance, gpm_t *into) {
  u64 found;
  CHECK(d, "nvmlGpmMigSampleGet");
  for (int mig = 0; mig < MIGS; mig++)
    if (number(handle(d->gpu, mig), "gi", &found) && found == instance) {
      if (!number(handle(d->gpu, mig), "gpm", &found)) return NOT_SUPPORTED;
      into->percent = (double)found;
      return SUCCESS;
    }
  return NOT_FOUND;
}
int nvmlGpmMetricsGet(metrics_t *asked) {
  CHECK(NULL, "nvmlGpmMetricsGet");
  for (unsigned n = 0; n < asked->count; n++) {
    asked->metrics[n].code = asked->metrics[n].id == 1 ? SUCCESS : NOT_SUPPORTED;
    asked->metrics[n].value = (asked->first->percent + asked->second->percent) / 2;
  }
  return SUCCESS;
}

typedef struct { device_t *device; u64 type, data; unsigned gi, ci; } event_t;

static int next_event(u64 after, event_t *into, u64 *newest) {
  char line[4096] = "", *at = line;
  long long seen, type, data, gpu;
  int used, found = 0;
  value(line, sizeof line, "events");
  while (sscanf(at, "%lld:%lld:%lld:%lld%n", &seen, &type, &data, &gpu, &used) == 4) {
    if ((u64)seen > after && !found) {
      *into = (event_t){gpu < 0 ? NULL : handle((int)gpu, -1), (u64)type, (u64)data, ~0u, ~0u};
      *newest = (u64)seen;
      found = 1;
    } else if (!found) *newest = (u64)seen;
    at += used + (at[used] == ',');
  }
  return found;
}

int nvmlEventSetCreate(set_t **into) {
  event_t event;
  u64 seen = 0;
  CHECK(NULL, "nvmlEventSetCreate");
  *into = calloc(1, sizeof **into);
  while (next_event(seen, &event, &seen)) { }
  (*into)->last = seen;
  return SUCCESS;
}
int nvmlEventSetFree(set_t *set) { free(set); return SUCCESS; }
int nvmlDeviceGetSupportedEventTypes(device_t *d, u64 *into) {
  CHECK(d, "nvmlDeviceGetSupportedEventTypes");
  *into = 0xffff;
  return SUCCESS;
}
int nvmlDeviceRegisterEvents(device_t *d, u64 types, set_t *set) {
  (void)types; (void)set;
  CHECK(d, "nvmlDeviceRegisterEvents");
  return SUCCESS;
}
int nvmlEventSetWait_v2(set_t *set, event_t *into, unsigned milliseconds) {
  u64 until = microseconds() + 1000ULL * milliseconds;
  for (;;) {
    CHECK(NULL, "nvmlEventSetWait");
    if (next_event(set->last, into, &set->last)) return SUCCESS;
    if (microseconds() >= until) return TIMEOUT;
    usleep(20000);
  }
}
