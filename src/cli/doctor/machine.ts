import { parseMemory } from "../../host/proc.ts";
import { sizeText } from "../../lib/text/size-text.ts";
import { buildInfo } from "../../lib/build-info.ts";
import { readPidFile } from "../../host/process/pid-file.ts";
import { fail, pass, skip, warn, type Check } from "./result.ts";
import { toolOutput, type CheckFamily } from "./tools.ts";

const FILES = { least: 1024, warnRatio: 0.8 };
const MEMORY = { warnRatio: 0.9, lowBytes: 64 * 1024 * 1024 };

export const limitChecks: CheckFamily = {
  name: "limits",
  async run({ agent, runDir, reader }) {
    const { status } = await agent();
    const pid = status?.pid ?? (await readPidFile(runDir, "agent"));
    const memory = parseMemory(reader.read("/proc/meminfo") ?? "");
    const machine =
      memory === undefined
        ? skip("memory", "unknown", "it cannot be measured")
        : memory.availableBytes < MEMORY.lowBytes
          ? warn(
              "memory",
              "memory-low",
              `${sizeText(memory.availableBytes)} of memory are left`,
              "end what needs most of it",
            )
          : pass("memory", `${sizeText(memory.availableBytes)} of ${sizeText(memory.totalBytes)} are available`);
    if (pid === undefined) return [machine, skip("files", "no-agent", "no agent runs")];
    const open = reader.list(`/proc/${pid}/fd`)?.length;
    const group = /^0::(\/\S*)$/m.exec(reader.read(`/proc/${pid}/cgroup`) ?? "")?.[1];
    const at = (file: string): string | undefined =>
      group === undefined ? undefined : reader.read(`/sys/fs/cgroup${group}/${file}`);
    return [
      machine,
      fileLimitCheck(reader.read(`/proc/${pid}/limits`), open),
      memoryLimitCheck(at("memory.max"), at("memory.current"), at("memory.events")),
    ];
  },
};

/** Judges the agent's limit of open files (proc_pid_limits(5)). Pure. */
export function fileLimitCheck(limits: string | undefined, open: number | undefined): Check {
  const text = /^Max open files\s+(\d+|unlimited)/m.exec(limits ?? "")?.[1];
  if (text === undefined || open === undefined)
    return skip("files", "access-denied", "the agent's limits may not be looked at");
  const limit = text === "unlimited" ? Infinity : Number(text);
  const message = `${open} of ${text} descriptors are open`;
  const fix = "raise LimitNOFILE= of its unit, or 'ulimit -n' of who starts it";
  if (open > limit * FILES.warnRatio) return fail("files", "files-exhausted", message, fix);
  return limit < FILES.least ? warn("files", "files-few", message, fix) : pass("files", message);
}

/** Judges the memory limit of the agent's control group, and past kills. Pure. */
export function memoryLimitCheck(
  max: string | undefined,
  current: string | undefined,
  events: string | undefined,
): Check {
  if (current === undefined) return skip("memory-limit", "unknown", "the agent has no control group that can be seen");
  const killed = Number(/^oom_kill (\d+)$/m.exec(events ?? "")?.[1] ?? 0);
  const limit = max === undefined || max.trim() === "max" ? Infinity : Number(max);
  const used = Number(current);
  const message = `${sizeText(used)} used of ${Number.isFinite(limit) ? sizeText(limit) : "no limit"}`;
  const fix = "'holdfast bundle', and report it; MemoryMax= of its unit is the limit";
  if (killed > 0)
    return warn("memory-limit", "memory-killed", `${message}; the kernel killed ${killed} processes of it`, fix);
  return used > limit * MEMORY.warnRatio
    ? warn("memory-limit", "memory-tight", message, fix)
    : pass("memory-limit", message);
}

export const timeChecks: CheckFamily = {
  name: "time",
  async run(tools) {
    const properties = ["-p", "NTPSynchronized", "-p", "NTP", "-p", "CanNTP"];
    const shown = await toolOutput(tools, "timedatectl", ["show", ...properties]);
    return [clockCheck(tools.clock.now(), buildInfo.build), syncCheck(shown)];
  },
};

/** Fails if the clock is before the build date of this program. Pure. */
export function clockCheck(now: number, build: string): Check {
  const [, year, month, day] = /^(\d{4})(\d{2})(\d{2})-/.exec(build) ?? [];
  const builtAt = year === undefined ? 0 : Date.UTC(Number(year), Number(month) - 1, Number(day));
  const message = new Date(now).toISOString();
  if (now >= builtAt) return pass("clock", message);
  return fail(
    "clock",
    "clock-before-build",
    `${message}, which is before this program was built`,
    "set the time, and see that it is kept in step (NTP)",
  );
}

/** Judges the output of timedatectl(1). Pure. */
export function syncCheck(shown: string | undefined): Check {
  if (shown === undefined)
    return skip("sync", "unknown", "timedatectl does not answer; the control plane's time is compared at each session");
  if (/^NTPSynchronized=yes$/m.test(shown)) return pass("sync", "the clock is kept in step");
  if (/^CanNTP=no$/m.test(shown)) {
    return warn(
      "sync",
      "sync-missing",
      "no time service that systemd knows is installed",
      "install one, Debian's systemd-timesyncd or chrony, unless the time comes from the host of this machine",
    );
  }
  const isOff = /^NTP=no$/m.test(shown);
  return warn(
    "sync",
    isOff ? "sync-off" : "sync-lost",
    isOff ? "nothing keeps the clock in step" : "the time service has not reached a server",
    isOff ? "'timedatectl set-ntp true'" : "let UDP port 123 out, or name a time server of the network",
  );
}

export const spoolChecks: CheckFamily = {
  name: "spool",
  async run({ agent }) {
    const { status } = await agent();
    return status === undefined ? [skip("records", "no-agent", "no agent reports it")] : spoolCheck(status.telemetry);
  },
};

/** Judges queued and lost records. Pure. */
export function spoolCheck(
  streams: Readonly<Record<string, { readonly queued: number; readonly dropped: number }>>,
): readonly Check[] {
  return Object.entries(streams).map(([name, { queued, dropped }]) =>
    dropped === 0
      ? pass(name, `${queued} wait, none was lost`)
      : warn(
          name,
          "records-lost",
          `${queued} wait, ${dropped} were lost since there were too many`,
          "see why the node is not online, or what makes so many",
        ),
  );
}
