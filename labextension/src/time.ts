// Durations and sizes as a person reads them.

/** `0:45`, `12:05`; beyond an hour `1 h 20 min`. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) {
    return `${minutes}:${String(whole % 60).padStart(2, '0')}`;
  }
  return roughly(seconds);
}

/** `40 s`, `12 min`, `7 h 5 min`, `2 d 3 h`. */
export function roughly(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120 && whole !== 60) {
    return `${whole} s`;
  }
  const minutes = Math.round(whole / 60);
  if (minutes < 60) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 48) {
    return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  }
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${hours / 24} d`;
}

/** How long something is expected to take: `20 s`, `1 min`, never finer than an estimate is. */
export function estimate(seconds: number): string {
  if (seconds < 50) {
    return roughly(Math.max(10, Math.ceil(seconds / 10) * 10));
  }
  return roughly(Math.max(1, Math.round(seconds / 60)) * 60);
}

/** Seconds from `now` (ms since 1970) to an ISO time; `null` where there is none. */
export function until(at: string | null | undefined, now: number): number | null {
  return at ? (Date.parse(at) - now) / 1000 : null;
}

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB'];

/** `812 B`, `3.4 MB`: decimal units, as the notebook's own text has them. */
export function size(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit && value < 10 ? 1 : 0;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

let language: string | undefined;

/** Write dates as Lab's language does (`de_DE`), in the reader's own variant of it where they have one. */
export function speak(code: string, preferred = navigator.languages): void {
  const wanted = code.replace('_', '-');
  const [base] = wanted.split('-');
  language = preferred.find(each => each.split('-')[0] === base) ?? wanted;
}

/** The reader's zone, and whether their clock reads 7:19 PM: a kernel writes times like this. */
export function readersClock(): { zone: string; twelve_hours: boolean } {
  const own = new Intl.DateTimeFormat(language, { hour: 'numeric' }).resolvedOptions();
  return { zone: own.timeZone, twelve_hours: own.hour12 === true };
}

/** The wall clock in the reader's zone: `14:32`. */
export function hour(at: string): string {
  return new Date(at).toLocaleTimeString(language, { timeStyle: 'short' });
}

/** The wall clock to the second: `14:32:05`. */
export function second(at: string): string {
  return new Date(at).toLocaleTimeString(language, { timeStyle: 'medium' });
}

/** The day in the reader's zone: `3 Nov`, with `weekday` `Tue, 3 Nov`. */
export function day(at: string, weekday = false): string {
  return new Date(at).toLocaleDateString(language, {
    ...(weekday ? { weekday: 'short' } : {}),
    day: 'numeric',
    month: 'short'
  });
}
