import { describe, expect, it } from "vitest";
import { missingSnmpSecrets, SnmpSection } from "../../../../../src/protocol/sections/snmp/snmp.ts";
import { APPLIANCE } from "../../../../support/control-plane/example-documents.ts";
import { closedSection } from "../../../../support/sections.ts";

const { snmp } = APPLIANCE;
const off = { enabled: false };

describe("the section snmp", () => {
  closedSection("snmp", SnmpSection, {
    good: [
      snmp,
      off,
      {
        enabled: false,
        interface: "",
        port: 0,
        engineId: "",
        username: "",
        authProtocol: "",
        authPassphrase: "",
        privacyProtocol: "",
        privacyPassphrase: "",
      },
      { enabled: false, interface: null, port: null, authProtocol: null, authPassphrase: null },
      { ...snmp, interface: "lo", authPassphrase: "", privacyPassphrase: "" },
      { ...snmp, interface: "ens192.30", authProtocol: "MD5", privacyProtocol: "DES", port: 1161 },
      { ...snmp, privacyProtocol: "AES192", engineId: "é".repeat(13) },
      { ...snmp, privacyProtocol: "AES256" },
    ],
    bad: [
      [{}, "snmp.enabled: is required"],
      [{ enabled: null }, "snmp.enabled: must be true or false"],
      [
        { enabled: true },
        ...["interface", "username", "authProtocol", "privacyProtocol"].map(
          (field) => `snmp.${field}: is required with enabled`,
        ),
      ],
      [
        { ...snmp, interface: "", username: null },
        "snmp.interface: is required with enabled",
        "snmp.username: is required with enabled",
      ],
      [{ ...off, interface: "not a nic" }, "snmp.interface: must be the name of a network interface"],
      [{ ...off, port: 70_000 }, "snmp.port: must be 1..65535"],
      [{ ...off, port: "161" }, "snmp.port: is text, and must be a whole number, 1..65535"],
      [
        { ...off, engineId: "e".repeat(28) },
        "snmp.engineId: must have at most 27 characters",
        "snmp.engineId: must have at most 27 bytes",
      ],
      [{ ...off, engineId: "é".repeat(14) }, "snmp.engineId: must have at most 27 bytes"],
      [{ ...off, engineId: "a\nrouser b" }, "snmp.engineId: must not have control characters"],
      [{ ...off, username: "u".repeat(33) }, "snmp.username: must have at most 32 characters"],
      [{ ...off, authProtocol: "sha" }, "snmp.authProtocol: must be one of SHA, MD5"],
      [{ ...off, authProtocol: "SHA256" }, "snmp.authProtocol: must be one of SHA, MD5"],
      [{ ...off, privacyProtocol: "AES" }, "snmp.privacyProtocol: must be one of DES, AES128, AES192, AES256"],
      [{ ...snmp, authPassphrase: "seven77" }, "snmp.authPassphrase: must have at least 8 characters"],
      [{ ...off, privacyPassphrase: "seven77" }, "snmp.privacyPassphrase: must have at least 8 characters"],
      [{ ...off, privacyPassphrase: "battery\nstaple" }, "snmp.privacyPassphrase: must not have control characters"],
      [{ ...off, authPassphrase: 12_345_678 }, "snmp.authPassphrase: must be text"],
      [{ ...off, community: "public" }, "snmp.community: is not a known field"],
    ],
  });

  it("repeats no pass phrase in a refusal", () => {
    const { error } = SnmpSection.safeParse({ ...snmp, authPassphrase: "hunter2", privacyPassphrase: ["hunter2"] });
    expect(error?.message).not.toContain("hunter2");
  });

  it.each([
    [off, []],
    [snmp, []],
    [
      { enabled: true },
      ["snmp.authPassphrase: is required with enabled", "snmp.privacyPassphrase: is required with enabled"],
    ],
    [{ ...snmp, authPassphrase: "" }, ["snmp.authPassphrase: is required with enabled"]],
    // As an older version stored it.
    [{ ...snmp, privacyPassphrase: "short" }, ["snmp.privacyPassphrase: must have at least 8 characters"]],
  ])("of %j misses the pass phrases %j", (section, lines) => {
    expect(missingSnmpSecrets(section)).toEqual(lines);
  });
});
