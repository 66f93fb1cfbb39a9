import type { Entry } from "./archives.ts";
import { sumsOf } from "./release.ts";

/** The files of one version, as they lie in `base/` and in the directory of an upgrade. */
export interface VersionFiles {
  readonly node: Buffer;
  readonly bundle: Buffer;
  /** The overlay's own bundle; undefined where one was given that has none beside it. */
  readonly overlay: Buffer | undefined;
  readonly version: string;
  readonly licences: string;
  readonly sbom: string;
}

/** Files that belong to the machine, not to a version. */
export interface SystemFiles {
  /** `systemd/` of the checkout, by name. */
  readonly systemd: ReadonlyMap<string, Buffer>;
  readonly releaseKeys: string;
  /** Pages of the guide by file name. They link to each other only, so no link dangles in an installed package. */
  readonly guide: ReadonlyMap<string, Buffer>;
  /** Completion scripts by shell. */
  readonly completions: ReadonlyMap<string, Buffer>;
}

export const BASE = "usr/lib/holdfast/base";
/** The command, and what it leads to. */
export const COMMAND: Entry = { path: "usr/bin/holdfast", link: "../lib/holdfast/launch" };
const COPYRIGHT: Entry = { path: "usr/share/doc/holdfast/copyright", link: "../../../lib/holdfast/base/LICENSES" };

const UNITS = "lib/systemd/system";
const PLACES: readonly (readonly [RegExp, (name: string) => string])[] = [
  [/\.(?:service|timer|path|socket|slice)$/, (name) => `${UNITS}/${name}`],
  [/\.preset$/, (name) => `lib/systemd/system-preset/${name}`],
  [/^holdfast\.sysusers$/, () => "usr/lib/sysusers.d/holdfast.conf"],
  [/^holdfast\.tmpfiles$/, () => "usr/lib/tmpfiles.d/holdfast.conf"],
  [/^launch$/, () => "usr/lib/holdfast/launch"],
];

const COMPLETIONS: Readonly<Record<string, string>> = {
  bash: "usr/share/bash-completion/completions/holdfast",
  zsh: "usr/share/zsh/vendor-completions/_holdfast",
  fish: "usr/share/fish/vendor_completions.d/holdfast.fish",
};

/** The files of a version below a folder, `""` for none. */
export function versionEntries(files: VersionFiles, folder: string): Entry[] {
  const under = folder === "" ? "" : `${folder}/`;
  const text = (name: string, data: string) => ({
    path: `${under}${name}`,
    mode: 0o644,
    data: Buffer.from(data),
  });
  const entries = [
    { path: `${under}node`, mode: 0o755, data: files.node },
    { path: `${under}holdfast.mjs`, mode: 0o644, data: files.bundle },
    ...(files.overlay === undefined ? [] : [{ path: `${under}overlay.mjs`, mode: 0o644, data: files.overlay }]),
    text("version", `${files.version}\n`),
    text("LICENSES", files.licences),
    text("sbom.cdx.json", files.sbom),
  ];
  const listed = entries.map(({ path, data }) => ({ name: path.slice(under.length), data }));
  return [...entries, text("SHA256SUMS", sumsOf(listed))];
}

/** The files of the machine. Throws for something in `systemd/` that has no place. */
export function systemEntries({ systemd, releaseKeys, guide, completions }: SystemFiles): Entry[] {
  for (const needed of ["launch", "holdfast.sysusers", "holdfast.tmpfiles"]) {
    if (!systemd.has(needed)) throw new Error(`there is no systemd/${needed}`);
  }
  const placed = [...systemd].map(([name, data]): Entry => {
    const place = PLACES.find(([pattern]) => pattern.test(name));
    if (place === undefined) throw new Error(`systemd/${name} has no place in the package`);
    return { path: place[1](name), mode: name === "launch" ? 0o755 : 0o644, data };
  });
  const completing = [...completions].flatMap(([shell, data]): Entry[] => {
    const path = COMPLETIONS[shell];
    return path === undefined ? [] : [{ path, mode: 0o644, data }];
  });
  return [
    ...placed,
    ...completing,
    { path: "usr/lib/holdfast/release-keys.json", mode: 0o644, data: Buffer.from(releaseKeys) },
    ...[...guide].map(([name, data]): Entry => ({ path: `usr/share/doc/holdfast/guide/${name}`, mode: 0o644, data })),
  ];
}

/** The Debian package's files. */
export function packageEntries(version: VersionFiles, system: SystemFiles): Entry[] {
  return [...versionEntries(version, BASE), ...systemEntries(system), COMMAND, COPYRIGHT];
}

/** The tarball's: a version, and below `system/` what a machine without dpkg needs beside it. No links: an upgrade takes none. */
export function tarballEntries(
  version: VersionFiles,
  system: SystemFiles,
  scripts: ReadonlyMap<string, Buffer>,
): Entry[] {
  return [
    ...versionEntries(version, ""),
    ...systemEntries(system).map((entry) => movedTo(`system/files/${entry.path}`, entry)),
    ...[...scripts].map(([name, data]): Entry => ({ path: `system/scripts/${name}`, mode: 0o755, data })),
  ];
}

const movedTo = (path: string, entry: Entry): Entry =>
  "data" in entry ? { path, mode: entry.mode, data: entry.data } : { path, link: entry.link };

/** Units of `systemd/` that the maintainer scripts handle. */
export interface Installed {
  /** Enabled when they come for the first time. */
  readonly enabled: readonly string[];
  /** Those of `enabled` that are started then. */
  readonly started: readonly string[];
  /** All that may be enabled. */
  readonly units: readonly string[];
  readonly users: readonly string[];
  readonly groups: readonly string[];
}

/** Reads units, presets and users. A preset says what is enabled; without one, whatever says where it is wanted. */
export function installedOf(systemd: ReadonlyMap<string, Buffer>): Installed {
  const names = [...systemd.keys()].sort();
  const textOf = (name: string): string => systemd.get(name)?.toString() ?? "";
  const units = names.filter((name) => /^[^@]+\.(?:service|timer|path|socket)$/.test(name));
  const installable = units.filter((name) => /^\[Install\]$/m.test(textOf(name)));
  const presets = names.filter((name) => name.endsWith(".preset")).map(textOf);
  const wanted = new Set(presets.flatMap((text) => [...text.matchAll(/^enable\s+(\S+)/gm)].map(([, unit]) => unit)));
  const enabled = presets.length === 0 ? installable : installable.filter((name) => wanted.has(name));
  // The others are for the boot, or run when something asks for them.
  const isStarted = (name: string): boolean =>
    /\.(?:timer|path|socket)$/.test(name) || /^holdfast-(?:agent|overlay)\.service$/.test(name);
  const sysusers = textOf("holdfast.sysusers");
  const named = (kind: string): string[] =>
    [...sysusers.matchAll(/^([a-z])\s+(\S+)/gm)].flatMap(([, found, name]) =>
      found === kind && name !== undefined ? [name] : [],
    );
  return { enabled, started: enabled.filter(isStarted), units, users: named("u"), groups: named("g") };
}
