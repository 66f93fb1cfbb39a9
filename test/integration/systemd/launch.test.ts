import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { sumsOf } from "../../../scripts/packaging/release.ts";
import { sampleOf } from "../../support/sample.ts";
import { tempDir } from "../../support/temp-dir.ts";

const LAUNCH = join(import.meta.dirname, "../../../systemd/launch");
/** The shell of Debian, and a sample of the others that a machine may have as sh(1). */
const DASH = ["dash"];
const SHELLS: readonly (readonly string[])[] = [DASH, ...sampleOf([["bash"], ["bash", "--posix"]], 1, "shells")];
const [OLD, MID, NEW] = ["0.1.20260101-0000", "0.1.20260202-0000", "0.1.20260303-0000"] as const;

interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A package and versions below a directory with a space and a star in its name, whose runtimes print their version. */
class Machine {
  readonly root = join(tempDir(), "a *");
  readonly lib = join(this.root, "lib");
  readonly versions = join(this.root, "versions");
  readonly #shell: readonly string[];

  constructor(shell: readonly string[]) {
    this.#shell = shell;
    mkdirSync(this.versions, { recursive: true });
    this.make(join(this.lib, "base"), OLD);
  }

  make(dir: string, version: string): void {
    mkdirSync(dir, { recursive: true });
    writeFileSync(join(dir, "version"), `${version}\n`);
    writeFileSync(join(dir, "holdfast.mjs"), "// the bundle\n");
    writeFileSync(join(dir, "node"), `#!/bin/sh\nprintf '%s|' ${version} "$@"; echo "$$"\n`);
    chmodSync(join(dir, "node"), 0o755);
  }

  add(version: string, ...marks: readonly string[]): string {
    const dir = join(this.versions, version);
    this.make(dir, version);
    for (const mark of marks) this.mark(version, mark);
    return dir;
  }

  /** Lists a version's files with their sums, as a package does. */
  list(dir: string): void {
    const files = readdirSync(dir).map((name) => ({ name, data: readFileSync(join(dir, name)) }));
    writeFileSync(join(dir, "SHA256SUMS"), sumsOf(files));
  }

  mark(version: string, mark: string, text = ""): void {
    writeFileSync(join(this.versions, `${version}.${mark}`), text);
  }

  has(version: string, mark: string): boolean {
    return existsSync(join(this.versions, `${version}.${mark}`));
  }

  read(version: string, mark: string): string {
    return readFileSync(join(this.versions, `${version}.${mark}`), "utf8");
  }

  /** The service manager is the test's: the path of a copy leads to it. */
  launch(args: readonly string[], env: Readonly<Record<string, string>> = {}): Ended {
    const bin = join(this.root, "bin");
    mkdirSync(bin, { recursive: true });
    const output = `case "$*" in *--property=Job*) cat '${this.root}/job' ;; *show*) cat '${this.root}/shown' ;; esac 2>/dev/null`;
    for (const name of ["systemctl", "systemd-run"]) {
      writeFileSync(join(bin, name), `#!/bin/sh\necho "${name} $*" >>'${this.root}/asked'\n${output}\n`, {
        mode: 0o755,
      });
    }
    const copy = join(this.root, "launch");
    writeFileSync(
      copy,
      readFileSync(LAUNCH, "utf8")
        .replace("PATH=/usr/sbin:", `PATH='${bin}':/usr/sbin:`)
        .replace("PATH=/usr/bin:/bin sleep", `PATH='${bin}':/usr/bin:/bin sleep`),
    );
    const [shell = "", ...options] = this.#shell;
    return spawnSync(shell, [...options, copy, ...args], {
      encoding: "utf8",
      env: { PATH: process.env["PATH"] ?? "", HOLDFAST_LIB: this.lib, HOLDFAST_VERSIONS: this.versions, ...env },
    });
  }

  /** Returns the calls of the service manager. */
  requested(): string {
    return existsSync(join(this.root, "asked")) ? readFileSync(join(this.root, "asked"), "utf8") : "";
  }

  /** Returns the recorded starts. */
  starts(version: string): string[] {
    return this.read(version, "starts")
      .replaceAll("\0", "")
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "");
  }

  /** Returns the version that was started, as printed by its runtime. */
  picks(...options: readonly string[]): string {
    return this.launch([...options, "status"]).stdout.split("|")[0] ?? "";
  }

  begin(id = "i"): Ended {
    return this.launch(["--begin"], { INVOCATION_ID: id });
  }

  /** The exit of the service as reported by systemd; `job` is the manager's answer on jobs of the unit. */
  ended(id: string, result: string, job = "77"): Ended {
    writeFileSync(join(this.root, "job"), job);
    return this.launch(["--ended"], { INVOCATION_ID: id, SERVICE_RESULT: result });
  }

  /** The start has run for a while; `shown` is the manager's state of it. */
  lived(id: string, shown = `ActiveState=active\nInvocationID=${id}\n`): Ended {
    writeFileSync(join(this.root, "shown"), shown);
    return this.launch(["--lived", id]);
  }
}

describe.each(SHELLS.map((shell) => [shell.join(" "), shell] as const))("launched by %s", (_name, shell) => {
  let machine: Machine;
  beforeEach(() => {
    machine = new Machine(shell);
  });

  test("it becomes the program of the newest version, with all arguments unchanged", () => {
    machine.add(MID);
    machine.add(NEW);
    const { status, stdout, stderr } = machine.launch(["trigger", "a b", "", "*", "--x=1"]);
    const bundle = join(machine.versions, NEW, "holdfast.mjs");
    const flags = "--disable-sigusr1|--disable-warning=ExperimentalWarning";
    expect(stdout).toMatch(new RegExp(`^${NEW}\\|${flags}\\|`.replaceAll("+", "\\+")));
    expect(stdout.split("|").slice(3, -1)).toEqual([bundle, "trigger", "a b", "", "*", "--x=1"]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  });

  test("the process stays the same, so that its supervisor has the right one", () => {
    const [name = "", ...options] = shell;
    const script = `echo "$$"; exec ${name} ${options.join(" ")} '${LAUNCH}' x`;
    const env = { PATH: process.env["PATH"] ?? "", HOLDFAST_LIB: machine.lib, HOLDFAST_VERSIONS: machine.versions };
    const { stdout } = spawnSync("dash", ["-c", script], { encoding: "utf8", env });
    const [own, output = ""] = stdout.split("\n");
    expect(output.split("|").at(-1)).toBe(own);
  });

  test.each([
    ["nothing but the package", [], OLD],
    ["an older one beside the package", ["0.1.20250101-0000"], OLD],
    ["a newer one", [NEW], NEW],
    ["several", [NEW, MID, "0.0.20270101-0000"], NEW],
    ["by text, as operators compare", ["0.9.20260101-0000", "0.10.20260101-0000"], "0.9.20260101-0000"],
    ["the same as the package's", [OLD], OLD],
  ])("of %s, picks the newest", (_what, versions, picked) => {
    for (const version of versions) machine.add(version);
    expect(machine.picks()).toBe(picked);
  });

  test("skips a version that is laid aside, for any caller, and does not count its starts meanwhile", () => {
    machine.add(MID);
    machine.add(NEW, "trial");
    machine.mark(NEW, "aside");
    expect([machine.picks(), machine.picks("--proven")]).toEqual([MID, MID]);
    machine.begin();
    expect(machine.has(NEW, "starts")).toBe(false);
    rmSync(join(machine.versions, `${NEW}.aside`));
    expect([machine.picks(), machine.picks("--proven")]).toEqual([NEW, MID]);
    machine.begin();
    expect(machine.starts(NEW)).toEqual(["i"]);
  });

  test("never picks an abandoned version, whatever its mark", () => {
    machine.add(MID);
    machine.add(NEW);
    machine.mark(NEW, "failed");
    expect(machine.picks()).toBe(MID);
    machine.mark(MID, "failed", "{garbage\0");
    expect(machine.picks()).toBe(OLD);
    rmSync(join(machine.versions, `${MID}.failed`));
    symlinkSync("/nowhere", join(machine.versions, `${MID}.failed`));
    expect(machine.picks()).toBe(OLD);
  });

  test("--proven skips what is on trial, and not what is on probation", () => {
    machine.add(MID, "probation");
    machine.add(NEW, "trial");
    expect(machine.picks()).toBe(NEW);
    expect(machine.picks("--proven")).toBe(MID);
  });

  const damages: readonly (readonly [string, (dir: string, machine: Machine) => void])[] = [
    ["its runtime is missing", (dir) => rmSync(join(dir, "node"))],
    ["its runtime is empty", (dir) => truncateSync(join(dir, "node"))],
    ["its runtime may not be executed", (dir) => chmodSync(join(dir, "node"), 0o644)],
    ["its runtime is a directory", (dir) => (rmSync(join(dir, "node")), mkdirSync(join(dir, "node")))],
    [
      "its runtime is a dangling link",
      (dir) => (rmSync(join(dir, "node")), symlinkSync("/nowhere", join(dir, "node"))),
    ],
    ["its runtime is all zeros", (dir) => writeFileSync(join(dir, "node"), Buffer.alloc(100_000))],
    [
      "its runtime is for another machine",
      (dir) =>
        writeFileSync(join(dir, "node"), Buffer.from("\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xff\xff", "latin1")),
    ],
    ["its interpreter is missing", (dir) => writeFileSync(join(dir, "node"), "#!/nowhere/sh\n")],
    ["its bundle is missing", (dir) => rmSync(join(dir, "holdfast.mjs"))],
    ["its bundle is empty", (dir) => truncateSync(join(dir, "holdfast.mjs"))],
    ["it is empty", (dir) => (rmSync(dir, { recursive: true }), mkdirSync(dir))],
    ["it is a file", (dir) => (rmSync(dir, { recursive: true }), writeFileSync(dir, "x"))],
    ["it is a dangling link", (dir) => (rmSync(dir, { recursive: true }), symlinkSync("/nowhere", dir))],
    ["it is a circle of links", (dir) => (rmSync(dir, { recursive: true }), symlinkSync(dir, dir))],
  ];
  test.each(damages)("picks the next if %s", (_what, damage) => {
    machine.add(MID);
    damage(machine.add(NEW), machine);
    expect(machine.picks()).toBe(MID);
  });

  test("of many that cannot be run, picks the first that can", () => {
    for (let day = 10; day < 20; day += 1) {
      writeFileSync(join(machine.add(`0.1.202604${day}-0000`), "node"), Buffer.alloc(64));
    }
    machine.add(NEW);
    const { stdout, stderr } = machine.launch(["a", "b c"]);
    expect(stdout.split("|").slice(4, -1)).toEqual(["a", "b c"]);
    expect(stdout.startsWith(NEW)).toBe(true);
    expect(stderr).toContain("0.1.20260419-0000 cannot be run");
  });

  test("ignores names that are not versions", () => {
    const names = [
      "part",
      "9",
      "9.9",
      "9.9.99999999-9999.old",
      "9.9.99999999-99999",
      "9.9.9999999-9999",
      "9..99999999-9999",
    ];
    for (const name of [
      ...names,
      "9.9.99999999-999x",
      "9.9.9999-9999-999",
      "9.9.9 9999999-999",
      "a b",
      "-n",
      "99999.9.99999999-9999",
    ]) {
      machine.make(join(machine.versions, name), "wrong");
    }
    expect(machine.picks()).toBe(OLD);
  });

  test("reads thousands of names", () => {
    for (let i = 0; i < 4000; i += 1) writeFileSync(join(machine.versions, `0.1.2026${1000 + i}-0000.failed`), "");
    machine.add(NEW);
    expect(machine.picks()).toBe(NEW);
  });

  test("a damaged package is no obstacle, and the lack of any version is reported", () => {
    machine.add(MID);
    rmSync(machine.lib, { recursive: true });
    expect(machine.picks()).toBe(MID);
    rmSync(machine.versions, { recursive: true });
    const { status, stderr } = machine.launch(["status"]);
    expect(status).toBe(127);
    expect(stderr).toContain("can be run; install the package again");
  });

  test("a package without a version is older than any", () => {
    machine.add("0.0.20200101-0000");
    writeFileSync(join(machine.lib, "base/version"), Buffer.from([0, 1, 2, 255, 10]));
    expect(machine.picks()).toBe("0.0.20200101-0000");
    machine.mark("0.0.20200101-0000", "failed");
    expect(machine.picks()).toBe(OLD);
  });

  test("while the package is replaced, uses the version that it brought before, if complete", () => {
    const before = join(machine.lib, "base.before");
    machine.make(join(machine.lib, "base"), MID);
    machine.make(before, OLD);
    expect(machine.picks()).toBe(OLD);
    machine.add(NEW, "failed");
    expect(machine.begin("start").status).toBe(0);
    expect(machine.picks()).toBe(OLD);
    truncateSync(join(before, "holdfast.mjs"));
    expect(machine.picks()).toBe(MID);
  });

  test("starts a version on trial three times, and then abandons it with a reason", () => {
    machine.add(NEW, "trial");
    const picked = [1, 2, 3, 4, 5].map((start) => {
      expect(machine.begin(`start-${start}`).status).toBe(0);
      return machine.picks();
    });
    expect(picked).toEqual([NEW, NEW, NEW, OLD, OLD]);
    expect(machine.starts(NEW)).toEqual(["start-1", "start-2", "start-3"]);
    expect(machine.read(NEW, "failed")).toBe("it was started 3 times and never ended well\n");
  });

  test("counts the next one separately", () => {
    machine.add(MID, "trial");
    machine.add(NEW, "trial");
    machine.mark(NEW, "starts", ["a", "b", "c"].map((id) => `${id.padEnd(63)}\n`).join(""));
    machine.begin("d");
    expect(machine.picks()).toBe(MID);
    expect(machine.starts(MID)).toEqual(["d"]);
  });

  test("never counts a confirmed version, or the package's", () => {
    for (let i = 0; i < 5; i += 1) machine.begin();
    machine.add(MID);
    for (let i = 0; i < 5; i += 1) machine.begin();
    expect(machine.picks()).toBe(MID);
    expect(readdirSync(machine.versions)).toEqual([MID]);
  });

  test("ignores marks of a version that the package has brought since", () => {
    for (const mark of ["trial", "failed", "starts"]) machine.mark(OLD, mark, "a\nb\nc\nd\n");
    machine.begin();
    expect(machine.picks()).toBe(OLD);
  });

  test("uses the package's previous version if there is no other", () => {
    renameSync(join(machine.lib, "base"), join(machine.lib, "base.before"));
    expect(machine.picks()).toBe(OLD);
    machine.add(NEW, "trial");
    for (let i = 0; i < 4; i += 1) machine.begin();
    expect(machine.picks()).toBe(OLD);
  });

  test("on probation three crashes lead back, and none after it", () => {
    machine.add(MID);
    machine.add(NEW);
    machine.mark(NEW, "probation", `until=${Math.floor(Date.now() / 1000) + 3600}\n`);
    for (let i = 0; i < 4; i += 1) machine.begin();
    expect(machine.picks()).toBe(MID);
    rmSync(join(machine.versions, `${NEW}.failed`));
    machine.mark(NEW, "probation", `until=${Math.floor(Date.now() / 1000) - 1}\n`);
    machine.begin();
    expect(machine.picks()).toBe(NEW);
    // The mark belongs to the upgrade's program, which may not have seen it yet.
    expect([machine.has(NEW, "probation"), machine.has(NEW, "starts")]).toEqual([true, false]);
  });

  test.each(["", "until=", "until=soon\n", "\0\0\0\0", "until=99999999999999999999999\n", "until=$(touch x)\n"])(
    "a probation of %j has no end to wait for",
    (text) => {
      machine.add(NEW);
      machine.mark(NEW, "probation", text);
      for (let i = 0; i < 5; i += 1) expect(machine.begin()).toMatchObject({ status: 0, stderr: "" });
      expect(machine.picks()).toBe(NEW);
    },
  );

  test("a clean exit removes its own line, so that restarts condemn nothing", () => {
    machine.add(NEW, "trial");
    for (let i = 0; i < 10; i += 1) {
      machine.begin(`boot-${i}`);
      expect(machine.picks()).toBe(NEW);
      expect(machine.ended(`boot-${i}`, "success")).toMatchObject({ status: 0, stderr: "" });
    }
    expect(machine.starts(NEW)).toEqual([]);
    for (const id of ["a", "same", "same"]) machine.begin(id);
    machine.ended("same", "success");
    expect(machine.starts(NEW)).toEqual(["a", "same"]);
    expect(readdirSync(machine.versions).toSorted()).toEqual([NEW, `${NEW}.starts`, `${NEW}.trial`]);
    expect(machine.requested()).toContain("--value -- holdfast-agent.service");
  });

  test("finds the line anywhere, also when another version has replaced it", () => {
    machine.add(MID, "trial");
    machine.begin("of-mid");
    machine.add(NEW, "trial");
    machine.ended("of-mid", "success");
    expect(machine.starts(MID)).toEqual([]);
    expect(machine.has(NEW, "starts")).toBe(false);
  });

  test.each([
    ["a crash", "exit-code", "77"],
    ["a signal", "signal", "77"],
    ["a hang", "timeout", "77"],
    ["silence", "watchdog", "77"],
    ["no memory", "oom-kill", "77"],
    ["an end before it was ready", "protocol", "77"],
    ["an end of its own accord, with status 0", "success", ""],
    ["the same where the manager names no job", "success", "0"],
    ["the same where it does not know", "success", "Failed to connect"],
    ["nothing that is known", "", "77"],
  ])("%s leaves the line", (_what, result, job) => {
    machine.add(NEW, "trial");
    for (let i = 0; i < 4; i += 1) {
      machine.begin(`s${i}`);
      machine.ended(`s${i}`, result, job);
    }
    expect(machine.picks()).toBe(OLD);
  });

  test("without an id of the service, starts are counted and removed all the same", () => {
    machine.add(NEW, "trial");
    machine.launch(["--begin"]);
    machine.launch(["--begin"]);
    expect(machine.starts(NEW)).toEqual(["-", "-"]);
    machine.ended("", "success");
    expect(machine.starts(NEW)).toEqual(["-"]);
  });

  test.each(["\0\0\0\n\xff\xfe\n***\n", "no newline at the end", "* \n", "\\\n", "-n\n-e\n"])(
    "garbage among the starts (%j) is counted if possible, and prevents no start",
    (text) => {
      machine.add(NEW, "trial");
      machine.mark(NEW, "starts", text);
      for (let i = 0; i < 4; i += 1) expect(machine.begin(`g${i}`).status).toBe(0);
      expect(machine.picks()).toBe(OLD);
      machine.ended("-n", "success");
    },
  );

  test("starts even if nothing can be counted", () => {
    machine.add(NEW, "trial");
    mkdirSync(join(machine.versions, `${NEW}.starts`));
    for (let i = 0; i < 5; i += 1) expect(machine.begin().status).toBe(0);
    expect(machine.ended("i", "success").status).toBe(0);
    expect(machine.picks()).toBe(NEW);
  });

  test("asks the manager whether a start has run for a while, by a timer that its end stops", () => {
    machine.add(NEW, "trial");
    machine.begin("one");
    expect(machine.requested()).toMatch(
      /^systemd-run .*--unit=holdfast-lived-one --on-active=300 .*--setenv=HOLDFAST_UNIT=holdfast-agent.service -- \/.*\/launch --lived one$/m,
    );
    for (const shown of ["", "ActiveState=active\nInvocationID=two\n", "InvocationID=one\nActiveState=activating\n"]) {
      machine.lived("one", shown);
      expect(machine.starts(NEW)).toEqual(["one"]);
    }
    machine.lived("one", "InvocationID=one\nActiveState=active\n");
    expect(machine.starts(NEW)).toEqual(["one lived"]);
    machine.ended("one", "signal");
    expect(machine.requested()).toContain("systemctl stop -- holdfast-lived-one.timer holdfast-lived-one.service\n");
    machine.lived("one");
    expect(machine.starts(NEW)).toEqual(["one ended"]);
  });

  test("counts a start although the manager creates no timer", () => {
    machine.add(NEW, "trial");
    machine.begin("one");
    writeFileSync(join(machine.root, "bin/systemd-run"), "#!/bin/sh\nexit 1\n");
    expect(machine.begin("two")).toMatchObject({ status: 0, stderr: "" });
    expect(machine.starts(NEW)).toEqual(["one", "two"]);
  });

  test.each(["trial", "probation"])("on a disk that refuses all writes, counts starts on %s all the same", (mark) => {
    const { versions } = machine;
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=256k,nr_inodes=16", "tmpfs", versions]);
    onTestFinished(() => void execFileSync("umount", [versions]));
    machine.add(NEW);
    machine.mark(NEW, "starts", "\0".repeat(192));
    machine.mark(NEW, mark, `until=${Math.floor(Date.now() / 1000) + 3600}\n`);
    spawnSync("sh", ["-c", 'head -c 1m /dev/zero >fill; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do : >"fill.$i"; done'], {
      cwd: versions,
    });
    expect(() => writeFileSync(join(versions, "more"), "")).toThrow("ENOSPC");
    const picked = [1, 2, 3, 4].map((start) => {
      expect(machine.begin(`start-${start}`).status).toBe(0);
      return machine.picks();
    });
    expect(picked).toEqual([NEW, NEW, NEW, OLD]);
    // By this mark the upgrade's program starts at the next boot, and reports the result.
    expect(machine.has(NEW, mark)).toBe(true);
  });

  test("delays a program that exits early repeatedly, and restarts after one crash at once", () => {
    machine.add(NEW);
    const started: string[] = [];
    const paced = (record?: string): number => {
      if (record !== undefined) writeFileSync(join(machine.root, "o@1.service.pace"), record);
      const asleep = join(machine.root, "bin/sleep");
      mkdirSync(join(machine.root, "bin"), { recursive: true });
      writeFileSync(asleep, `#!/bin/sh\necho "$1" >>'${machine.root}/slept'\n`, { mode: 0o755 });
      rmSync(join(machine.root, "slept"), { force: true });
      const { stdout } = machine.launch(["--paced", "o@1.service", "--proven", "overlay"], {
        RUNTIME_DIRECTORY: machine.root,
      });
      started.push(stdout.split("|").slice(4, -1).join(" "));
      return existsSync(join(machine.root, "slept")) ? Number(readFileSync(join(machine.root, "slept"), "utf8")) : 0;
    };
    const now = Math.floor(Date.now() / 1000);
    expect([paced(), paced(), paced(), paced()]).toEqual([0, 0, 0, 1]);
    expect([5, 7, 9].map((short) => paced(`${short} ${now}\n`))).toEqual([3, 8, 15]);
    expect(paced(`9 ${now - 60}\n`)).toBe(0);
    for (const record of ["", "x y\n", "08 09\n", `\0\0\n`, `1000000 ${now}\n`]) expect(paced(record)).toBe(0);
    expect(new Set(started)).toEqual(new Set(["overlay"]));
    expect(machine.launch(["--paced", "x", "status"]).stdout).toContain("|status|");
  });

  test.each(["--ended", "--crashed"])("%s after a crash abandons a proven version whose files are damaged", (verb) => {
    const dir = machine.add(NEW);
    machine.add(MID);
    machine.list(dir);
    const crashed = (): Ended => machine.launch([verb], { INVOCATION_ID: "i", SERVICE_RESULT: "exit-code" });
    expect([crashed().stderr, machine.picks()]).toEqual(["", NEW]);
    truncateSync(join(dir, "holdfast.mjs"), 5);
    machine.launch([verb], { INVOCATION_ID: "i", SERVICE_RESULT: "success" });
    expect(machine.picks()).toBe(NEW);
    expect(crashed().stderr).toBe(`holdfast: ${NEW} is given up: its files are damaged\n`);
    expect([machine.read(NEW, "failed"), machine.picks()]).toEqual(["its files are damaged\n", MID]);
  });

  test("after a crash of several damaged versions uses the next whole one, and reports a damaged package", () => {
    const dirs = [machine.add(NEW), machine.add(MID), join(machine.lib, "base")];
    for (const dir of dirs) {
      machine.list(dir);
      truncateSync(join(dir, "holdfast.mjs"), 5);
    }
    const { status, stderr } = machine.launch(["--crashed"], { SERVICE_RESULT: "signal" });
    expect([status, stderr.split("\n").at(-2)]).toEqual([
      0,
      `holdfast: files of the package below ${join(machine.lib, "base")} are damaged; install it again`,
    ]);
    expect([machine.has(NEW, "failed"), machine.has(MID, "failed"), machine.picks()]).toEqual([true, true, OLD]);
  });

  test("a version that does not list its files, or an unreadable list, condemns nothing without a difference", () => {
    const dir = machine.add(NEW);
    machine.launch(["--crashed"], { SERVICE_RESULT: "exit-code" });
    mkdirSync(join(dir, "SHA256SUMS"));
    machine.launch(["--crashed"], { SERVICE_RESULT: "exit-code" });
    expect([machine.has(NEW, "failed"), machine.picks()]).toEqual([false, NEW]);
  });

  test("a directory in the place of a failure counts as one", () => {
    machine.add(NEW, "trial");
    mkdirSync(join(machine.versions, `${NEW}.failed`));
    expect(machine.picks()).toBe(OLD);
  });
});

type Start = "crashed" | "crashed after a while" | "cut" | "cut after a while" | "stopped";
const cases: readonly (readonly [mark: "trial" | "probation", starts: readonly Start[], picked: string])[] = [
  ["trial", ["crashed", "crashed", "crashed"], OLD],
  ["trial", ["cut", "cut", "cut"], OLD],
  ["trial", ["crashed after a while", "crashed after a while", "crashed after a while"], OLD],
  ["trial", ["cut after a while", "cut after a while", "cut after a while", "cut after a while"], NEW],
  ["probation", ["crashed", "crashed", "crashed"], OLD],
  ["probation", ["crashed", "crashed", "stopped", "stopped"], NEW],
  ["probation", ["cut", "cut", "cut"], OLD],
  ["probation", ["cut after a while", "cut after a while", "cut after a while", "cut after a while"], NEW],
  ["probation", ["crashed after a while", "crashed after a while", "crashed after a while"], OLD],
  ["probation", ["crashed", "cut after a while", "cut after a while", "cut after a while", "crashed"], NEW],
  ["probation", ["crashed", "cut after a while", "crashed", "cut after a while", "crashed after a while"], OLD],
  ["probation", ["crashed", "cut", "stopped", "crashed"], OLD],
];
test.each(cases)("on %s, after starts that %j, it is %s", (mark, starts, picked) => {
  const machine = new Machine(DASH);
  machine.add(NEW);
  machine.mark(NEW, mark, mark === "trial" ? "" : `until=${Math.floor(Date.now() / 1000) + 3600}\n`);
  for (const [at, start] of starts.entries()) {
    const id = `boot-${at}`;
    machine.begin(id);
    expect([at, machine.picks()]).toEqual([at, NEW]);
    if (start.endsWith("after a while")) machine.lived(id);
    if (!start.startsWith("cut")) machine.ended(id, start === "stopped" ? "success" : "exit-code");
  }
  machine.begin("last");
  expect(machine.picks()).toBe(picked);
});
