import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { inLanes } from "../../support/network/lanes.ts";
import { machineCopy, type Ended, type MachineCopy } from "../../support/machine/machine-copy.ts";
import { sampleOf } from "../../support/sample.ts";
import { releaseKey, smallRelease } from "../../support/upgrades/small-release.ts";

const ARCHITECTURE = process.arch === "arm64" ? "arm64" : "amd64";
const FIRST = "0.1.20260101-0000";
const SECOND = "0.1.20260202-0000";
const LIMIT_MS = 3_600_000;
/** Each run is one process at a time. */
const LANES = 2;

/**
 * systemctl(1) that records its calls and makes links, on a machine that looks as if systemd ran. Nothing is synced there, since that would
 * sync the disks of the copied machine.
 */
const RUNNING = `mkdir -p /run/systemd/system; rm -f /usr/sbin/policy-rc.d
mv /usr/bin/systemctl /usr/bin/systemctl.real && cat >/usr/bin/systemctl <<'END'
#!/bin/sh
echo "$*" >>/run/calls
case $1 in enable | disable) SYSTEMD_OFFLINE=1 exec systemctl.real "$@" ;; esac
END
chmod 755 /usr/bin/systemctl
ln -sf true /usr/bin/sync`;

/** Without apt-get, which reads lists for seconds and then works like dpkg. */
const KINDS = [
  { kind: "the Debian package", before: "mv /usr/bin/apt-get /usr/bin/no-apt-get" },
  { kind: "the tarball", before: "mv /usr/bin/dpkg /usr/bin/no-dpkg" },
] as const;

/** The machines of a kind, which its tests only copy. */
interface Stage extends AsyncDisposable {
  readonly given: string;
  /** Without Holdfast. */
  readonly bare: MachineCopy;
  /** With the first version and its state. */
  readonly installed: MachineCopy;
  /** Runs a command in a copy, whose /run is empty. */
  readonly run: (machine: MachineCopy, command: string) => Promise<Ended>;
}

async function staged(before: string): Promise<Stage> {
  const folder = mkdtempSync(join(tmpdir(), "hf-"));
  const given = join(folder, "given");
  mkdirSync(given);
  const signer = await releaseKey(given);
  await smallRelease(join(given, "first"), "20260101-000000.000000000000", signer, ARCHITECTURE);
  await smallRelease(join(given, "second"), "20260202-000000.111111111111", signer, ARCHITECTURE);
  copyFileSync(join(import.meta.dirname, "../../support/kills/kill-at.py"), join(given, "kill-at.py"));
  const machine = await machineCopy(folder, given);
  await must(machine.run(`${before} && ${RUNNING}`));
  const bare = await machine.again();
  const run = (copy: MachineCopy, command: string): Promise<Ended> =>
    copy.run(`mkdir -p /run/systemd/system; export PATH=/usr/sbin:/usr/bin:/sbin:/bin; ${command}`);
  const prepared = await bare.again();
  await must(run(prepared, "sh /given/first/install.sh"));
  await must(
    prepared.run("echo kept >/var/lib/holdfast/state; mkdir -p /etc/holdfast; echo '{}' >/etc/holdfast/agent.json"),
  );
  return {
    given,
    bare,
    installed: await prepared.again(),
    run,
    async [Symbol.asyncDispose]() {
      await machine[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function must(running: Promise<Ended>): Promise<string> {
  const { status, output } = await running;
  expect(status, output).toBe(0);
  return output;
}

interface Case {
  readonly what: string;
  readonly command: string;
  readonly from: "bare" | "installed";
  /** The versions that may answer after the kill; empty if none may. */
  readonly meanwhile: readonly string[];
  /** Checks the final state. */
  readonly check: (stage: Stage, machine: MachineCopy) => Promise<void>;
}

/** Expects it enabled, known to the system, started, and without remains of the installation. */
async function checkWhole({ run }: Stage, machine: MachineCopy, version: string, calls: RegExp): Promise<void> {
  expect(await must(run(machine, "holdfast x"))).toBe(`holdfast ${version} x\n`);
  expect(await must(run(machine, "cat /usr/lib/holdfast/base/version"))).toBe(`${version}\n`);
  await must(run(machine, "getent passwd holdfast-overlay && getent group holdfast"));
  await must(run(machine, "test -L /etc/systemd/system/multi-user.target.wants/holdfast-agent.service"));
  expect(await must(run(machine, "cat /run/calls"))).toMatch(calls);
  const names = "-name '*.part' -o -name '*.dpkg-*' -o -name 'units-before*' -o -name 'base.*' -o -name unstarted";
  expect(
    await must(run(machine, `find /usr/lib/holdfast /usr/share/doc/holdfast /lib/systemd /usr/lib/*.d ${names}`)),
  ).toBe("");
}

const CASES: readonly Case[] = [
  {
    what: "installation",
    command: "sh /given/first/install.sh",
    from: "bare",
    meanwhile: [],
    check: (stage, machine) => checkWhole(stage, machine, FIRST, /^(?:try-re)?start holdfast-agent\.service$/m),
  },
  {
    what: "upgrade",
    command: "sh /given/second/install.sh",
    from: "installed",
    meanwhile: [FIRST, SECOND],
    check: (stage, machine) => checkWhole(stage, machine, SECOND, /^try-restart holdfast-agent\.service$/m),
  },
  {
    what: "removal",
    command: "sh /given/first/install.sh --remove --purge",
    from: "installed",
    meanwhile: [],
    check: async ({ run }, machine) => {
      const ours =
        "/usr/lib /usr/bin /usr/share /lib/systemd /etc /var/lib /run -not -path '/var/lib/dpkg/*' -iname '*holdfast*'";
      expect(await must(run(machine, `find ${ours}`))).toBe("");
      expect(
        (await run(machine, "getent passwd holdfast-overlay; getent group holdfast holdfast-overlay; ls /etc/*.lock"))
          .output,
      ).not.toMatch(/^holdfast/m);
      // For a package that is not installed there may still be a record of that.
      expect((await run(machine, "dpkg-query -W -f '${Status}' holdfast")).output).toMatch(
        / not-installed$|no packages found|not found/,
      );
    },
  },
];

const runOf = (command: string, at: number, mode: string, name: string): string =>
  `python3 /given/kill-at.py ${at} ${mode} /given/${name} ${command}`;

describe.each(KINDS)("$kind", ({ before, kind }) => {
  let stage: Stage;
  beforeAll(async () => void (stage = await staged(before)));
  afterAll(() => stage[Symbol.asyncDispose]());

  it.each(CASES)(
    "$what, killed anywhere and repeated, completes",
    async ({ what, command, from, meanwhile, check }) => {
      const { given, run } = stage;
      const linesOf = (name: string): readonly string[] => readFileSync(join(given, name), "utf8").trim().split("\n");
      {
        await using machine = await stage[from].again();
        await must(run(machine, runOf(command, 0, "all", "log")));
        await check(stage, machine);
      }
      const count = linesOf("log").length - 1;
      expect(count).toBeGreaterThan(100);
      // All of its processes are killed, or only the one that makes the call.
      const points = Array.from({ length: count }, (_, i) => ({ at: i + 1, mode: i % 2 === 0 ? "all" : "one" }));
      const sample = sampleOf(points, 1, `${kind}, ${what}`);
      let late = 0;
      await inLanes(sample, LANES, async ({ at, mode }) => {
        await using machine = await stage[from].again();
        const log = `log-${at}-${mode}`;
        const killed = await run(machine, runOf(command, at, mode, log));
        const lines = linesOf(log);
        let where = `${mode} killed at ${at}, ${lines.at(-2) ?? ""}: ${killed.output}`;
        if (lines.at(-1) !== "killed") late += 1;
        try {
          const answer = await run(machine, "holdfast x");
          if (meanwhile.length > 0)
            expect(meanwhile.map((version) => `holdfast ${version} x\n`)).toContain(answer.output);
          else expect(answer.output).not.toContain("half a version");
          const again = await run(machine, command);
          where += `\nagain: ${again.output}`;
          expect(again.status).toBe(0);
          await check(stage, machine);
        } catch (error) {
          throw new Error(where, { cause: error });
        }
      });
      console.log(`${kind}, ${what}: killed at ${sample.length - late} of ${points.length} points`);
    },
    LIMIT_MS,
  );

  it(
    "on a full disk leaves the present version, reports why, and is installed once there is room",
    async () => {
      const { run } = stage;
      const command = "sh /given/second/install.sh";
      {
        await using machine = await stage.installed.again();
        await machine.leaveFree(8000);
        const { status, output } = await run(machine, command);
        expect(output).toMatch(
          /install\.sh: \/usr\/lib\/holdfast has \d+ KiB free, and \d+ KiB are needed; nothing was installed\n/,
        );
        expect(status).toBe(1);
        await machine.leaveFree(100);
        expect((await run(machine, command)).output).toMatch(
          /install\.sh: \/tmp\/\S+ has \d+ KiB free, and 256 KiB are needed/,
        );
        await machine.leaveFree();
      }
      // Hides the free space from its own check, as when another program fills the disk meanwhile.
      const unaware = `mkdir -p /run/bin; printf '#!/bin/sh\\necho; echo - - - 99999999\\n' >/run/bin/df; chmod 755 /run/bin/df; PATH=/run/bin:$PATH`;
      // Free KiB: around the needs of the tarball, and of dpkg's own records.
      const all = [20, 60, 100, 140, 200, 400, 600, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 3000];
      const rooms = sampleOf(all, 3, `${kind}, a full disk`);
      let full = 0;
      for (const kib of rooms) {
        await using machine = await stage.installed.again();
        await machine.leaveFree(kib);
        const { status, output } = await run(machine, `${unaware} ${command}`);
        if (status !== 0) {
          full += 1;
          expect(output, `${kib} KiB`).toMatch(/No space left on device/);
        }
        const whole = [FIRST, SECOND].map((version) => `holdfast ${version} x\n`);
        expect(whole, output).toContain(await must(run(machine, "holdfast x")));
        await machine.leaveFree();
        const again = await run(machine, command);
        expect(again.status, `${kib} KiB: ${output}${again.output}`).toBe(0);
        await checkWhole(stage, machine, SECOND, /^try-restart holdfast-agent\.service$/m);
      }
      expect(full).toBeGreaterThan(0);
    },
    LIMIT_MS,
  );
});
