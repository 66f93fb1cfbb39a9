import { join } from "node:path";
import { readEntry, type PathEntry } from "../../host/files/path-entry.ts";
import { sizeText } from "../../lib/text/size-text.ts";
import type { LeftState } from "../../protocol/local/left-state.ts";
import { IDENTITY_LOST, identityLostFix } from "../../protocol/local/identity-lost.ts";
import { fail, pass, skip, warn, type Check } from "./result.ts";
import type { CheckFamily } from "./tools.ts";

const FREE = { warnRatio: 0.15, failRatio: 0.03, warnBytes: 256 * 1024 * 1024 };
/** Maximum number of named files. */
const MAX_DAMAGED = 20;

export const settingsChecks: CheckFamily = {
  name: "settings",
  async run({ left }) {
    const { settings } = await left();
    if (settings.isGood && settings.problem !== undefined) {
      const { code, message } = settings.problem;
      return [warn("file", code, message, "correct the file, and restart the agent")];
    }
    if (settings.isGood) return [pass("file", "the local settings can be used, or there are none")];
    if (settings.code === "access-denied") return [skip("file", "access-denied", settings.message)];
    return [
      fail("file", settings.code, settings.message, "mend the file; an agent that starts with it does not start"),
    ];
  },
};

export const stateChecks: CheckFamily = {
  name: "state",
  async run({ stateDir, reader, left, isRoot }) {
    const entry = readEntry(stateDir);
    const place = directoryCheck(stateDir, entry, process.geteuid?.() ?? 0);
    if (entry === "absent") return [place];
    const space = reader.space(stateDir);
    const names = ["", "identity", "desired", "reported"].flatMap((part) =>
      (reader.list(join(stateDir, part)) ?? []).map((name) => join(part, name)),
    );
    const isReadable = reader.list(stateDir) !== undefined;
    return [
      place,
      space === undefined ? skip("space", "unknown", "it cannot be measured") : spaceCheck(space),
      isReadable ? damageCheck(names) : skip("damage", "access-denied", needsRoot(isRoot)),
      ...identityChecks(await left(), needsRoot(isRoot)),
    ];
  },
};

const needsRoot = (isRoot: boolean): string =>
  isRoot ? "it cannot be read" : "only root and its owner can see it: run the command with sudo";

/** Judges permissions and owner of a state directory. Pure. */
export function directoryCheck(path: string, entry: PathEntry | "absent" | "denied", uid: number): Check {
  if (entry === "absent") {
    return warn(
      "directory",
      "state-absent",
      `there is no ${path}`,
      "it is made when an agent starts, or name another with --state",
    );
  }
  if (entry === "denied")
    return skip("directory", "access-denied", `no permission to read ${path}: run the command with sudo`);
  if (entry.kind !== "directory")
    return fail("directory", "not-a-directory", `${path} is no directory`, "move it away");
  if ((entry.mode & 0o077) !== 0) {
    const mode = entry.mode.toString(8);
    return fail(
      "directory",
      "unsafe-directory",
      `${path} is open to others (mode ${mode}): keys lie below it`,
      `chmod 700 ${path}`,
    );
  }
  if (entry.uid !== 0 && entry.uid !== uid) {
    return warn(
      "directory",
      "other-owner",
      `${path} belongs to user ${entry.uid}`,
      "see that the agent runs as this user, or chown it",
    );
  }
  return pass("directory", `${path} is its owner's alone`);
}

/** Judges free space. Pure. */
export function spaceCheck({
  totalBytes,
  freeBytes,
}: {
  readonly totalBytes: number;
  readonly freeBytes: number;
}): Check {
  const ratio = totalBytes === 0 ? 0 : freeBytes / totalBytes;
  const message = `${sizeText(freeBytes)} free of ${sizeText(totalBytes)}`;
  const fix = "free space on this file system; nothing that was good is destroyed meanwhile";
  if (ratio < FREE.failRatio) return fail("space", "disk-full", message, fix);
  return ratio < FREE.warnRatio || freeBytes < FREE.warnBytes
    ? warn("space", "disk-low", message, fix)
    : pass("space", message);
}

/** Finds files that were set aside as damaged. Pure. */
export function damageCheck(names: readonly string[]): Check {
  const damaged = names.filter((name) => /\.damaged(?:-wal)?$/.test(name));
  if (damaged.length === 0) return pass("damage", "no file was set aside as damaged");
  const shown = damaged.slice(0, MAX_DAMAGED).join(", ");
  return warn(
    "damage",
    "damaged-file",
    `set aside as damaged: ${shown}`,
    "'holdfast health' says what became of each; check the disk, then remove the copies",
  );
}

/** Judges the identity files. Pure. */
export function identityChecks({ files, node }: Pick<LeftState, "files" | "node">, denied: string): readonly Check[] {
  const by = (is: string): readonly string[] => files.filter((file) => file.is === is).map(({ file }) => file);
  const [lost, recovered, unreadable] = [by("lost"), by("recovered"), by("unreadable")];
  const keys = "identity/keys.json";
  const areKeysLost = node !== undefined && [...by("absent"), ...lost].includes(keys);
  const again = "'holdfast reset', then register the node again; documents come by themselves";
  return [
    unreadable.length > 0
      ? skip("identity", "access-denied", `${unreadable.join(", ")}: ${denied}`)
      : areKeysLost
        ? fail(
            "identity",
            IDENTITY_LOST.code,
            `${node.name} (${node.fqdn}): ${IDENTITY_LOST.message}`,
            identityLostFix({}),
          )
        : lost.length > 0
          ? fail("identity", "state-lost", `damaged, with its copy: ${lost.join(", ")}`, again)
          : recovered.length > 0
            ? warn(
                "identity",
                "state-recovered",
                `damaged, and read from its copy: ${recovered.join(", ")}`,
                "check the disk",
              )
            : node === undefined
              ? warn("identity", "not-registered", "this node is not registered", "'holdfast register <license>'")
              : pass("identity", `${node.name} (${node.fqdn}), with its keys`),
  ];
}
