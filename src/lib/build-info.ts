declare const HOLDFAST_BUILD: { readonly version: string; readonly build: string } | undefined;

/** Identifies this program. `build` is `YYYYMMDD-HHMMSS.<commit>` (UTC) in a bundle and `source` in a checkout. */
export const buildInfo: { readonly version: string; readonly build: string } =
  typeof HOLDFAST_BUILD === "undefined" ? { version: "0.1.0", build: "source" } : HOLDFAST_BUILD;

const BUILD = /^(\d{8})-(\d{4})\d{2}\./;

/**
 * Version `<major>.<minor>.<YYYYMMDD>-<HHMM>` of the build. Operators compare versions as text, so every part has a fixed width and a
 * later build is greater. A checkout has no date and sorts before every build.
 */
export function packageVersion({ version, build }: { readonly version: string; readonly build: string }): string {
  const [major = "0", minor = "0"] = version.split(".");
  const [, day = "00000000", time = "0000"] = BUILD.exec(build) ?? [];
  return `${major}.${minor}.${day}-${time}`;
}

const MOMENT = /^(\d{4})(\d{2})(\d{2})-(\d{2})(\d{2})(\d{2})\./;

/** Returns the build time in Unix milliseconds; undefined in a checkout. */
export function buildTime({ build }: { readonly build: string }): number | undefined {
  const found = MOMENT.exec(build);
  if (found === null) return undefined;
  const [year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0] = found.slice(1).map(Number);
  return Date.UTC(year, month - 1, day, hour, minute, second);
}
