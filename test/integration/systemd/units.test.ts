import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { describe, expect, test } from "vitest";
import { GAVE_WAY_STATUS, MANAGED_OVERLAY } from "../../../src/protocol/overlay/overlay.ts";
import { UPGRADE_PATHS } from "../../../src/protocol/documents/release.ts";
import { tempDir } from "../../support/temp-dir.ts";

const SHIPPED = globSync("systemd/*.{service,slice}").sort();
const hasSystemd = spawnSync("systemd-analyze", ["--version"]).status === 0;

/** The units as files in a directory, whose programs exist. */
function unitsWithPrograms(): string[] {
  const dir = tempDir();
  const program = join(dir, "program");
  writeFileSync(program, "#!/bin/sh\n");
  chmodSync(program, 0o755);
  return SHIPPED.map((path) => {
    const text = readFileSync(path, "utf8");
    const copy = join(dir, basename(path));
    writeFileSync(copy, text.replaceAll(/\/usr\/lib\/holdfast\/launch|\/usr\/bin\/unattended-upgrade\b/g, program));
    return copy;
  });
}

/** Returns the values of a setting, in order. */
function valuesOf(unit: string, name: string): string[] {
  const text = readFileSync(`systemd/${unit}.service`, "utf8");
  return [...text.matchAll(new RegExp(`^${name}=(.*)$`, "gm"))].map(([, value = ""]) => value);
}

describe.skipIf(!hasSystemd)("systemd (needs systemd-analyze)", () => {
  test("reports no error in any unit", () => {
    expect(SHIPPED.length).toBeGreaterThanOrEqual(7);
    const { status, stdout, stderr } = spawnSync("systemd-analyze", ["verify", "--man=no", ...unitsWithPrograms()], {
      encoding: "utf8",
    });
    expect({ status, output: stdout + stderr }).toEqual({ status: 0, output: "" });
  });

  test.each([
    ["holdfast-agent", 25],
    ["holdfast-overlay", 16],
    ["holdfast-overlay@", 16],
    ["holdfast-controller", 16],
    ["holdfast-restore", 26],
    ["holdfast-os-update", 70],
    ["holdfast-upgrade", 22],
  ])("rates the exposure of %s at most %i tenths", (unit, tenths) => {
    const args = ["security", "--offline=true", "--no-pager", `--threshold=${tenths}`, `./systemd/${unit}.service`];
    const { status, stdout, stderr } = spawnSync("systemd-analyze", args, { encoding: "utf8" });
    expect({ status, last: stdout.trim().split("\n").at(-1), stderr }).toMatchObject({ status: 0, stderr: "" });
  });

  test.skipIf(process.getuid?.() !== 0)("creates the shipped users and directories (needs root)", () => {
    const root = tempDir();
    mkdirSync(join(root, "etc"));
    execFileSync("systemd-sysusers", [`--root=${root}`, join(process.cwd(), "systemd/holdfast.sysusers")], {
      stdio: "pipe",
    });
    const users = readFileSync(join(root, "etc/passwd"), "utf8").split("\n");
    expect(users.map((line) => line.split(":")[0])).toEqual(
      expect.arrayContaining(["holdfast-overlay", "holdfast-controller"]),
    );
    execFileSync("systemd-tmpfiles", ["--create", `--root=${root}`, join(process.cwd(), "systemd/holdfast.tmpfiles")]);
    const made = execFileSync("stat", ["-c", "%a %n", ...globSync(`${root}/{run,var/lib,etc}/holdfast*`).sort()], {
      encoding: "utf8",
    });
    expect(made.trim().replaceAll(root, "").split("\n")).toEqual([
      "755 /etc/holdfast",
      "750 /run/holdfast",
      "750 /run/holdfast-overlay",
      "700 /var/lib/holdfast",
      "755 /var/lib/holdfast-versions",
    ]);
  });
});

describe("the units", () => {
  test("let the agent write its own directories and the network's settings, and send no raw packet", () => {
    expect(valuesOf("holdfast-agent", "ProtectSystem")).toEqual(["strict"]);
    expect(valuesOf("holdfast-agent", "ReadWritePaths")).toEqual(["/proc/sys/net"]);
    expect(valuesOf("holdfast-agent", "ConfigurationDirectory")).toEqual([]);
    for (const unit of ["holdfast-agent", "holdfast-restore"])
      expect([unit, valuesOf(unit, "RestrictAddressFamilies")]).toEqual([
        unit,
        ["AF_UNIX AF_INET AF_INET6 AF_NETLINK"],
      ]);
  });

  test("limit everything but traffic to a part of the machine's memory", () => {
    const slice = readFileSync("systemd/system-holdfast.slice", "utf8");
    const share = (text: string, name: string): number =>
      Number(new RegExp(`^${name}=(\\d+)%$`, "m").exec(text)?.[1] ?? Number.NaN);
    expect(share(slice, "MemoryHigh")).toBeLessThan(share(slice, "MemoryMax"));
    expect(share(slice, "MemoryMax")).toBeLessThanOrEqual(50);
    for (const unit of ["holdfast-agent", "holdfast-upgrade"])
      expect([unit, valuesOf(unit, "Slice")]).toEqual([unit, ["system-holdfast.slice"]]);
    for (const unit of ["holdfast-overlay", "holdfast-controller"]) {
      const text = readFileSync(`systemd/${unit}.service`, "utf8");
      expect([unit, share(text, "MemoryMax")]).toEqual([unit, 75]);
    }
  });

  test("leave the agent three capabilities and the overlay one", () => {
    expect(valuesOf("holdfast-agent", "CapabilityBoundingSet")).toEqual(["CAP_NET_ADMIN CAP_NET_RAW CAP_CHOWN"]);
    for (const unit of ["holdfast-overlay", "holdfast-overlay@"]) {
      expect(valuesOf(unit, "CapabilityBoundingSet")).toEqual(["CAP_NET_BIND_SERVICE"]);
      expect(valuesOf(unit, "AmbientCapabilities")).toEqual(["CAP_NET_BIND_SERVICE"]);
      expect(valuesOf(unit, "User")).toEqual(["holdfast-overlay"]);
    }
  });

  test("never give up starting what should run", () => {
    for (const unit of ["holdfast-agent", "holdfast-overlay", "holdfast-overlay@", "holdfast-controller"]) {
      expect([unit, valuesOf(unit, "StartLimitIntervalSec"), valuesOf(unit, "Restart")]).toEqual([
        unit,
        ["0"],
        ["always"],
      ]);
    }
  });

  test("have the directories for sockets created again at each start of the agent", () => {
    expect(valuesOf("holdfast-agent", "ExecStartPre")[0]).toBe(
      "-+systemd-tmpfiles --create /usr/lib/tmpfiles.d/holdfast.conf",
    );
    for (const unit of ["holdfast-overlay", "holdfast-overlay@"])
      expect([unit, valuesOf(unit, "ReadWritePaths")]).toEqual([unit, ["/run"]]);
  });

  test("keep units of other programs running when the agent restarts", () => {
    for (const path of SHIPPED) {
      const text = readFileSync(path, "utf8");
      expect(text, path).not.toMatch(/^(?:BindsTo|PartOf|Requires)=.*holdfast-agent/m);
    }
    // A successor serves from the same directory.
    for (const unit of ["holdfast-agent", "holdfast-overlay", "holdfast-overlay@"]) {
      expect([unit, valuesOf(unit, "RuntimeDirectoryPreserve")]).toEqual([unit, ["yes"]]);
    }
  });

  test("let only the agent run a version on trial", () => {
    for (const path of globSync("systemd/*.service").filter((path) => !path.endsWith("holdfast-agent.service"))) {
      const starts = [...readFileSync(path, "utf8").matchAll(/^ExecStart=(.*launch.*)$/gm)].map(([, line]) => line);
      for (const start of starts)
        expect(start, path).toMatch(/^\/usr\/lib\/holdfast\/launch (?:--paced %n )?--proven /);
    }
  });

  test("continue an upgrade after a power cut at any point, also after the verification", () => {
    const [glob, path] = ["ConditionPathExistsGlob", "ConditionPathExists"].map((name) =>
      valuesOf("holdfast-upgrade", name),
    );
    // The files at its successive steps: a request, a mark of the trial, and one of the probation.
    expect(path).toEqual([`|${UPGRADE_PATHS.versions}/request.json`, `|${UPGRADE_PATHS.request}`]);
    expect(glob).toEqual([`|${UPGRADE_PATHS.versions}/*.trial`, `|${UPGRADE_PATHS.versions}/*.probation`]);
  });

  test("track an overlay that has handed over, and let any take over from any", () => {
    for (const unit of ["holdfast-overlay", "holdfast-overlay@"]) {
      expect(valuesOf(unit, "RestartPreventExitStatus")).toEqual([String(GAVE_WAY_STATUS)]);
      expect(valuesOf(unit, "SuccessExitStatus")).toEqual([String(GAVE_WAY_STATUS)]);
      expect(valuesOf(unit, "ExecStart")).toEqual(["/usr/lib/holdfast/launch --paced %n --proven overlay --successor"]);
      expect(valuesOf(unit, "StateDirectory").map((name) => `/var/lib/${name}`)).toEqual([MANAGED_OVERLAY.stateDir]);
      expect(valuesOf(unit, "RuntimeDirectory").map((name) => `/run/${name}`)).toEqual([MANAGED_OVERLAY.runDir]);
    }
    const service = (unit: string): string =>
      readFileSync(`systemd/${unit}.service`, "utf8").split("[Service]")[1] ?? "";
    expect(service("holdfast-overlay@").trim()).toBe(service("holdfast-overlay").split("[Install]")[0]?.trim());
  });

  test("let the overlay be killed last when memory runs out", () => {
    const score = (unit: string): number => Number(valuesOf(unit, "OOMScoreAdjust")[0] ?? 0);
    const others = SHIPPED.filter((path) => path.endsWith(".service"))
      .map((path) => basename(path, ".service"))
      .filter((unit) => !unit.includes("overlay"));
    expect(score("holdfast-overlay")).toBeLessThan(Math.min(...others.map(score)));
  });
});
