import { HostError } from "../errors.ts";
import type { Exec } from "../host/process/exec.ts";
import type { Services } from "./deps.ts";

const AGENT = "holdfast-agent.service";
const SYSTEM_UPDATE = "holdfast-os-update.service";
const DEADLINE_MS = 30_000;
/** Longer than the time limit of the unit: the switch must wait until packages are replaced. */
const SYSTEM_UPDATE_MS = 3 * 60 * 60_000;
const PACKAGES_BYTES = 4 * 1024 * 1024;
const MAX_NAMED = 8;
const SUCCESSION_MS = 90_000;

/** Returns the services of a managed install. */
export function systemdServices(exec: Pick<Exec, "run">): Services {
  const ask = async (args: readonly string[], deadlineMs: number, signal: AbortSignal): Promise<string> => {
    const result = await exec.run("systemctl", args, { signal, deadlineMs, maxOutputBytes: 16_384 });
    const { exitCode, stdout, stderr } = result;
    if (exitCode === 0) return stdout;
    throw new HostError("exec-failed", `systemctl ${args.join(" ")}: ${stderr.trim() || `exit status ${exitCode}`}`);
  };
  const systemctl = async (...given: Parameters<typeof ask>): Promise<void> => void (await ask(...given));
  return {
    restartAgent: (signal) => systemctl(["restart", "--no-block", "--", AGENT], DEADLINE_MS, signal),
    startAgent: (signal) => systemctl(["start", "--no-block", "--", AGENT], DEADLINE_MS, signal),
    async updateSystem(signal) {
      try {
        await systemctl(["start", "--", SYSTEM_UPDATE], SYSTEM_UPDATE_MS, signal);
      } catch (error) {
        signal.throwIfAborted();
        throw (await packageFault(exec, signal).catch(() => undefined)) ?? error;
      }
      // If the tool is not installed, systemd skips its unit, which is not a failure.
      const shown = await ask(["show", "--property=ConditionResult", "--", SYSTEM_UPDATE], DEADLINE_MS, signal);
      return shown.trim() === "ConditionResult=yes";
    },
    succeedOverlay: (version, signal) =>
      systemctl(["start", "--", `holdfast-overlay@${version}.service`], SUCCESSION_MS, signal),
  };
}

/** Returns the fault of the package database that prevents updates, if any; the unit has already repaired what it could. */
async function packageFault(exec: Pick<Exec, "run">, signal: AbortSignal): Promise<HostError | undefined> {
  const args = ["--show", "--showformat=${db:Status-Abbrev}\t${binary:Package}\n"];
  const shown = await exec.run("dpkg-query", args, { signal, deadlineMs: DEADLINE_MS, maxOutputBytes: PACKAGES_BYTES });
  if (shown.exitCode !== 0) {
    const why = shown.stderr.replaceAll(/\s+/gu, " ").trim().slice(0, 512) || `exit status ${shown.exitCode}`;
    return new HostError(
      "package-database",
      `the package database cannot be read: ${why}; restore /var/lib/dpkg/status from /var/backups or /var/lib/dpkg/status-old`,
    );
  }
  const broken = brokenPackages(shown.stdout);
  if (broken.length === 0) return undefined;
  const more = broken.length > MAX_NAMED ? ` and ${broken.length - MAX_NAMED} more` : "";
  const named = broken.slice(0, MAX_NAMED).map(({ name, state }) => `${name} (${state})`);
  return new HostError(
    "package-database",
    `packages are not completely installed: ${named.join(", ")}${more}; run dpkg --configure -a and apt-get --fix-broken install, or install those again`,
  );
}

/** Status letters of a package in dpkg-query(1). */
const UNFINISHED: Readonly<Record<string, string>> = { U: "unpacked", F: "half configured", H: "half installed" };

/** Returns the packages whose installation was interrupted or failed, from the output of dpkg-query(1). Pure. */
function brokenPackages(shown: string): readonly { readonly name: string; readonly state: string }[] {
  return shown.split("\n").flatMap((line) => {
    const [status = "", name = ""] = line.split("\t");
    const state = status[2] === "R" ? "must be installed again" : UNFINISHED[status[1] ?? ""];
    return state === undefined || name === "" ? [] : [{ name, state }];
  });
}
