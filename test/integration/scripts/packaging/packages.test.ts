import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { controlText, filledScript } from "../../../../scripts/packaging/debian.ts";
import { installerText } from "../../../../scripts/packaging/installer.ts";
import { keysFrom, makeKeys, signerFrom } from "../../../../scripts/packaging/keys.ts";
import { installedOf, systemEntries } from "../../../../scripts/packaging/layout.ts";
import { optionsFrom } from "../../../../scripts/packaging/options.ts";
import { buildTime, claimsOf, MAX_PACKAGE_BYTES, requireSmall, sumsOf } from "../../../../scripts/packaging/release.ts";
import { isWhole } from "../../../../scripts/packaging/runtime.ts";
import { verifyJws } from "../../../../src/protocol/channel/jws.ts";
import { releaseKey, smallRelease, STAND_IN_SYSTEMD } from "../../../support/upgrades/small-release.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const SYSTEM = {
  releaseKeys: "{}",
  guide: new Map([["README.md", Buffer.from("")]]),
  completions: new Map<string, Buffer>(),
};
const BUILD = "20261121-183000.0123456789ab";

describe("a release", () => {
  it("is reproducible, and its manifest covers both packages", async () => {
    const folder = tempDir();
    const signer = await releaseKey(folder);
    const first = await smallRelease(join(folder, "first"), BUILD, signer);
    const second = await smallRelease(join(folder, "second"), BUILD, signer);
    const names = readdirSync(first.folder);
    expect(names.sort()).toEqual([
      "holdfast-0.1.20261121-1830-linux-amd64.tar.xz",
      "holdfast_0.1.20261121-1830_amd64.deb",
      "install.sh",
      "manifest.jws",
    ]);
    for (const name of names) {
      expect(readFileSync(join(second.folder, name)), name).toEqual(readFileSync(join(first.folder, name)));
    }
    const line = readFileSync(join(first.folder, "manifest.jws"), "utf8").trim();
    const claims = await verifyJws("holdfast-release+jwt", line, new Map([[signer.kid, signer.publicKey]]));
    expect(claims).toEqual(first.claims);
    for (const file of [claims.files["amd64"], claims.packages?.["amd64"]]) {
      if (file === undefined) throw new Error("a file is missing");
      expect(statSync(join(first.folder, file.name)).size).toBe(file.size);
      const [sum] = execFileSync("sha256sum", [join(first.folder, file.name)], { encoding: "utf8" }).split(" ");
      expect(sum).toBe(file.sha256);
    }
    const deb = join(first.folder, "holdfast_0.1.20261121-1830_amd64.deb");
    expect(execFileSync("dpkg-deb", ["--field", deb, "Version"], { encoding: "utf8" })).toBe("0.1.20261121-1830\n");
    const contents = execFileSync("dpkg-deb", ["--contents", deb], { encoding: "utf8" });
    expect(contents).toContain("./usr/bin/holdfast -> ../lib/holdfast/launch");
    expect(contents).toContain("./usr/lib/holdfast/base/overlay.mjs\n");
    const tarball = join(first.folder, "holdfast-0.1.20261121-1830-linux-amd64.tar.xz");
    const listed = execFileSync("tar", ["-tvf", tarball], { encoding: "utf8" });
    expect(listed).not.toMatch(/^[^d-]/m);
    expect(listed).toMatch(/ node$/m);
    expect(listed).toMatch(/ overlay\.mjs$/m);
  });

  it("is limited in size", () => {
    const data = Buffer.alloc(MAX_PACKAGE_BYTES + 1);
    expect(() => requireSmall({ name: "x.deb", data, unpackedSize: 1 })).toThrow("x.deb takes 40000001 bytes");
  });

  it("has the build's time, in a form valid in the protocol", () => {
    expect(buildTime(BUILD)).toBe(Date.UTC(2026, 10, 21, 18, 30) / 1000);
    expect(() => buildTime("20269921-183000.0")).toThrow("no date");
    const wrong = { version: "1", build: BUILD, expiresDays: 1, minVersion: "0.1.00000000-0000" };
    expect(() => claimsOf([], wrong)).toThrow("must look like");
  });

  it("lists sums in the form of sha256sum(1)", () => {
    const folder = tempDir();
    const files = ["b", "a"].map((name) => ({ name, data: Buffer.from(name) }));
    for (const { name, data } of files) writeFileSync(join(folder, name), data);
    writeFileSync(join(folder, "SHA256SUMS"), sumsOf(files));
    expect(execFileSync("sha256sum", ["-c", "SHA256SUMS"], { cwd: folder, encoding: "utf8" })).toBe("a: OK\nb: OK\n");
  });
});

describe("units", () => {
  it("have a path, each of them", () => {
    const files = existsSync("systemd/launch")
      ? new Map(readdirSync("systemd").map((name) => [name, readFileSync(join("systemd", name))]))
      : STAND_IN_SYSTEMD;
    expect(systemEntries({ ...SYSTEM, systemd: files }).map(({ path }) => path)).toContain("usr/lib/holdfast/launch");
    const stranger = new Map([...STAND_IN_SYSTEMD, ["README", Buffer.from("")]]);
    expect(() => systemEntries({ ...SYSTEM, systemd: stranger })).toThrow("systemd/README has no place");
    expect(() => systemEntries({ ...SYSTEM, systemd: new Map() })).toThrow("no systemd/launch");
  });

  it("come with the guide that they name", () => {
    const paths = systemEntries({ ...SYSTEM, systemd: STAND_IN_SYSTEMD }).map(({ path }) => path);
    expect(paths).toContain("usr/share/doc/holdfast/guide/README.md");
    const agent = readFileSync("systemd/holdfast-agent.service", "utf8");
    expect(agent).toContain("Documentation=file:///usr/share/doc/holdfast/guide/README.md\n");
  });

  it("are enabled by the preset, and started if they do not start at boot", () => {
    const install = Buffer.from("[Install]\nWantedBy=multi-user.target\n");
    const systemd = new Map([
      ...STAND_IN_SYSTEMD,
      ["holdfast-restore.service", install],
      ["holdfast-look.timer", install],
      ["90-holdfast.preset", Buffer.from("enable holdfast-agent.service\nenable holdfast-restore.service\n")],
    ]);
    expect(installedOf(systemd)).toEqual({
      enabled: ["holdfast-agent.service", "holdfast-restore.service"],
      started: ["holdfast-agent.service"],
      units: [
        "holdfast-agent.service",
        "holdfast-controller.service",
        "holdfast-look.timer",
        "holdfast-restore.service",
      ],
      users: ["holdfast-overlay"],
      groups: ["holdfast"],
    });
    systemd.delete("90-holdfast.preset");
    expect(installedOf(systemd).enabled).toContain("holdfast-look.timer");
  });

  it("appear in the maintainer scripts, which a shell can parse", () => {
    const installed = installedOf(STAND_IN_SYSTEMD);
    for (const name of ["preinst", "postinst", "prerm", "postrm"]) {
      const text = filledScript(readFileSync(`scripts/packaging/maintainer/${name}`, "utf8"), installed);
      expect(text).not.toMatch(/@[A-Z]+@/);
      execFileSync("sh", ["-n"], { input: text });
    }
    expect(() => filledScript("@WHAT@", installed)).toThrow("unknown @WHAT@");
    expect(() => filledScript("@USERS@", { ...installed, users: ["a; b"] })).toThrow("no plain name");
    expect(controlText("0.1.20261121-1830", "arm64", [])).toMatch(/^Architecture: arm64$/m);
  });
});

describe("keys", () => {
  it("come in pairs, readable by their owner only, and never replace another", async () => {
    const file = join(tempDir(), "release.jwk");
    makeKeys(file);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(keysFrom(`${file}.pub`)).toEqual([(await signerFrom(file)).publicKey]);
    expect(() => makeKeys(file)).toThrow("EEXIST");
    await expect(signerFrom(`${file}.pub`)).rejects.toThrow("release.jwk.pub");
  });

  it("are written into the installer", () => {
    const script = readFileSync("scripts/install.sh", "utf8");
    const key = "A".repeat(43);
    expect(installerText(script, [key])).toContain(`\nrelease_keys='${key}'\n`);
    expect(() => installerText(script, ["'; rm -rf /"])).toThrow("no Ed25519 key");
    expect(() => installerText("", [key])).toThrow("no place");
  });
});

describe("options", () => {
  it.each([
    [["--arch", "mips"], "--arch"],
    [["--expires", "0"], "--expires"],
    [["--build", "today"], "--build: must look like"],
    [["--min-version", "1"], "--min-version: must look like"],
    [["--level", "10"], "--level"],
    [["--what"], "--what"],
  ])("refuse %j by name", (args, message) => {
    expect(() => optionsFrom(args)).toThrow(message);
  });

  it("default to every architecture", () => {
    expect(optionsFrom([])).toMatchObject({ architectures: ["amd64", "arm64"], out: "dist/release", level: 6 });
    expect(optionsFrom(["--sign", "a", "--sign", "b"]).sign).toEqual(["a", "b"]);
  });

  it("may ask for no compression", () => {
    expect(optionsFrom(["--level", "none"]).level).toBe("none");
    expect(optionsFrom(["--level", "9"]).level).toBe(9);
  });
});

it("an archive of the registry must match the lockfile", () => {
  const file = join(tempDir(), "x.tgz");
  writeFileSync(file, "abc");
  const digest = "3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==";
  expect(isWhole(file, `sha512-${digest}`)).toBe(true);
  writeFileSync(file, "abd");
  expect(isWhole(file, `sha512-${digest}`)).toBe(false);
});
