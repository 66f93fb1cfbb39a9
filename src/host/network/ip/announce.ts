import { HostError } from "../../../errors.ts";
import type { Exec, ExecResult } from "../../process/exec.ts";

/** Announces an address to a link's neighbours. @throws {HostError} `tool-missing`, `exec-failed`. */
export type Announce = (link: string, address: string, signal: AbortSignal) => Promise<void>;

const COUNT = 3;
const BOUNDS = { deadlineMs: 10_000, maxOutputBytes: 64 * 1024 };

/**
 * Sends three gratuitous ARP requests (RFC 5227, section 3) with either arping(8): iputils' or Habets'. The latter needs the
 * sender's address and reports a failure if nobody answers.
 */
export function arpAnnouncer(exec: Pick<Exec, "run">): Announce {
  let isIputils = false;
  return async (link, address, signal) => {
    const common = ["-U", "-c", String(COUNT)];
    const send = (args: readonly string[]): Promise<ExecResult> =>
      exec.run("arping", [...common, ...args, "--", address], { signal, ...BOUNDS });
    if (!isIputils) {
      const sent = await send(["-i", link, "-S", address]);
      if (sent.stdout.includes("packets transmitted")) return;
      if (!sent.stderr.includes("invalid option")) throw refusal(link, sent);
      isIputils = true;
    }
    const sent = await send(["-I", link]);
    if (sent.exitCode !== 0 && !sent.stdout.includes("Sent ")) throw refusal(link, sent);
  };
}

function refusal(link: string, { exitCode, stderr }: ExecResult): HostError {
  const reason = (stderr.trim().split("\n")[0] ?? "").slice(0, 512);
  return new HostError("exec-failed", `arping on ${link}: ${reason}`, { details: { tool: "arping", link, exitCode } });
}
