import { describe, expect, it } from "vitest";
import { readLicense } from "../../../../src/cli/frame/license-input.ts";
import { licenseClaims, someLicense } from "../../../support/control-plane/license.ts";

const good = someLicense();
const [header = "", claims = "", signature = ""] = good.split(".");

describe("readLicense", () => {
  it.each(["", " ", "\n\n", "\t"])("trims white space around it: %j", (space) => {
    expect(readLicense(`${space}${good}${space}`)).toEqual({ text: good, claims: licenseClaims });
  });

  it.each([
    ["nothing", " \n", "it is empty"],
    ["one that is too long", "x".repeat(8193), "8193 bytes, and at most 8192"],
    ["a line break inside", `${header}.${claims}\n.${signature}`, "white space inside"],
    ["two parts", `${header}.${claims}`, "three parts separated by dots, and has 2"],
    ["four parts", `${good}.x`, "has 4"],
    ["no signature", `${header}.${claims}.`, "its signature (part 3 of 3) is empty"],
    ["claims in another alphabet", `${header}.${claims}=.${signature}`, "its claims (part 2 of 3) holds characters"],
    ["a header that is no JSON", `AAAA.${claims}.${signature}`, "its header cannot be used"],
    ["claims that are no JSON", `${header}.AAAA.${signature}`, "its claims cannot be used (not JSON"],
    [
      "another kind of token",
      someLicense({}, { alg: "Ed25519", typ: "JWT", kid: "k" }),
      "its header cannot be used (expected holdfast-license+jwt, not JWT)",
    ],
    [
      "another algorithm",
      someLicense({}, { alg: "none", typ: "holdfast-license+jwt", kid: "k" }),
      "its header cannot be used (alg must be EdDSA or Ed25519)",
    ],
    ["a wrong name", someLicense({ name: "Edge_1" }), "its claims cannot be used (name: lower-case letters"],
    ["a wrong control plane", someLicense({ iss: "ftp://x" }), "its claims cannot be used (iss: must be an http"],
    ["no root", someLicense({ root: undefined }), "its claims cannot be used (root:"],
  ])("refuses %s and names the part", (_what, text, message) => {
    expect(() => readLicense(text)).toThrow(expect.objectContaining({ code: "invalid-license" }));
    expect(() => readLicense(text)).toThrow(message);
  });
});
