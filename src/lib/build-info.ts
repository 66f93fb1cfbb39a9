declare const HOLDFAST_BUILD: { readonly version: string; readonly build: string } | undefined;

/** Which program this is. `build` is `YYYYMMDD-HHMMSS.<commit>`, in UTC, in a bundle and `source` when run from a checkout. */
export const buildInfo: { readonly version: string; readonly build: string } =
  typeof HOLDFAST_BUILD === "undefined" ? { version: "0.1.0", build: "source" } : HOLDFAST_BUILD;

const BUILD = /^(\d{8})-(\d{4})\d{2}\./;

/**
 * The version as `<major>.<minor>.<YYYYMMDD>-<HHMM>` of the build: operators compare it as text, so every part keeps its
 * width and a later build has the greater one. A checkout, which has no date, comes before every build.
 */
export function packageVersion({ version, build }: { readonly version: string; readonly build: string }): string {
  const [major = "0", minor = "0"] = version.split(".");
  const [, day = "00000000", time = "0000"] = BUILD.exec(build) ?? [];
  return `${major}.${minor}.${day}-${time}`;
}

const MOMENT = /^(\d{4})(\d{2})(\d{2})-(\d{2})(\d{2})(\d{2})\./;

/** When this program was built, in Unix milliseconds; undefined of a checkout. */
export function buildTime({ build }: { readonly build: string }): number | undefined {
  const found = MOMENT.exec(build);
  if (found === null) return undefined;
  const [year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0] = found.slice(1).map(Number);
  return Date.UTC(year, month - 1, day, hour, minute, second);
}
