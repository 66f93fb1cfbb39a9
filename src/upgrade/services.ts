import { HostError } from "../errors.ts";
import type { Exec } from "../host/exec.ts";
import type { Services } from "./upgrade.ts";

const AGENT = "holdfast-agent.service";
const SYSTEM_UPDATE = "holdfast-os-update.service";
const DEADLINE_MS = 30_000;
/** Longer than its unit may take: nothing is switched while packages are being replaced. */
const SYSTEM_UPDATE_MS = 3 * 60 * 60_000;
const SUCCESSION_MS = 90_000;

/** The units of a managed install. */
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
      await systemctl(["start", "--", SYSTEM_UPDATE], SYSTEM_UPDATE_MS, signal);
      // Where the tool is not installed its unit is passed over, which is no failure.
      const shown = await ask(["show", "--property=ConditionResult", "--", SYSTEM_UPDATE], DEADLINE_MS, signal);
      return shown.trim() === "ConditionResult=yes";
    },
    succeedOverlay: (version, signal) =>
      systemctl(["start", "--", `holdfast-overlay@${version}.service`], SUCCESSION_MS, signal),
  };
}
