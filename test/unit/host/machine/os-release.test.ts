import { expect, test } from "vitest";
import { debianArchitecture, readOsRelease } from "../../../../src/host/machine/os-release.ts";
import { machineRoot } from "../../../support/machine/machine-root.ts";

test("reads identifier and version, quoted or not", () => {
  const { reader } = machineRoot({
    "/etc/os-release": `# comment\nNAME="Ubuntu"\nVERSION="18.04.3 LTS (Bionic Beaver)"\nID=ubuntu\nEXTRA='it"s'\n`,
  });
  expect(readOsRelease(reader)).toEqual({ id: "ubuntu", version: "18.04.3 LTS (Bionic Beaver)" });
});

test("falls back to the file of the vendor and to the short version", () => {
  const { reader } = machineRoot({ "/usr/lib/os-release": "ID=alpine\nVERSION_ID=3.20.1\n" });
  expect(readOsRelease(reader)).toEqual({ id: "alpine", version: "3.20.1" });
});

test("returns nothing if nothing is known", () => {
  expect(readOsRelease(machineRoot({}).reader)).toEqual({ id: undefined, version: undefined });
});

test("maps architectures to their Debian names", () => {
  expect(["x64", "arm64", "arm", "riscv64"].map(debianArchitecture)).toEqual(["amd64", "arm64", "armhf", "riscv64"]);
});
