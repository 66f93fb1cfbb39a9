import { describe, expect, it } from "vitest";
import { hideSecrets, keepSecrets } from "../../../../src/protocol/documents/secrets.ts";
import type { SectionName } from "../../../../src/protocol/sections/sections.ts";
import type { JsonObject } from "../../../../src/protocol/values/values.ts";

const tunnel = (name: string, rest: object) => ({ tunnels: [{ name, type: "ipsec", ...rest }] });
const peer = (ip: string, rest: object) => ({ groups: [{ name: "g", peers: [{ name: "p", ip, ...rest }] }] });
const client = (name: string, rest: object) => ({
  networks: [{ name: "n", wireguard: { clients: [{ name, ...rest }] } }],
});
const container = (rest: object) => ({ commands: [{ id: "1", image: { tag: "1" }, ...rest }] });

describe("hideSecrets", () => {
  it("replaces a secret by a given mark", () => {
    const config = { exec: container({ variables: [{ name: "A", value: "s" }] }), snmp: { authPassphrase: "s" } };
    expect(hideSecrets(config, "***")).toEqual({
      exec: container({ variables: [{ name: "A", value: "***" }] }),
      snmp: { authPassphrase: "***" },
    });
  });

  it.each<[SectionName, JsonObject, JsonObject]>([
    [
      "network",
      tunnel("a", { psk: "s", presharedKey: "s", mtu: 1 }),
      tunnel("a", { psk: "", presharedKey: "", mtu: 1 }),
    ],
    ["network", { tunnels: [null, 7, { psk: ["s"] }] }, { tunnels: [null, 7, { psk: "" }] }],
    ["_bgp", peer("192.0.2.1", { secret: "s" }), peer("192.0.2.1", { secret: "" })],
    [
      "snmp",
      { authPassphrase: "s", privacyPassphrase: "s", port: 161 },
      { authPassphrase: "", privacyPassphrase: "", port: 161 },
    ],
    ["vpn", client("c", { presharedKey: "s" }), client("c", { presharedKey: "" })],
    ["cluster", { host: "192.0.2.1", shared: "s" }, { host: "192.0.2.1", shared: "" }],
    [
      "exec",
      container({ variables: [{ name: "A", value: "s" }] }),
      container({ variables: [{ name: "A", value: "" }] }),
    ],
    [
      "exec",
      container({ Variables: [{ name: "A", VALUE: "s" }] }),
      container({ Variables: [{ name: "A", VALUE: "" }] }),
    ],
    [
      "exec",
      container({ config: { variables: [{ uid: "1", name: "A", value: ["s"] }] } }),
      container({ config: { variables: [{ uid: "1", name: "A", value: "" }] } }),
    ],
    ["exec", container({ variables: ["A=s", null, { A: "s" }] }), container({ variables: ["", "", { A: "" }] })],
    ["exec", container({ variables: { A: "s" } }), container({ variables: { A: "" } })],
    ["exec", container({ variables: "A=s" }), container({ variables: "" })],
    [
      "exec",
      { commands: { one: { variables: [{ name: "A", value: "s" }] } } },
      { commands: { one: { variables: [{ name: "A", value: "" }] } } },
    ],
    ["gateway", { psk: "s", isEnabled: true }, { psk: "", isEnabled: true }],
    [
      "alert",
      { targets: [{ id: "1", http: { Password: "s", api_key: "s", token: ["s"], secret: true } }] },
      { targets: [{ id: "1", http: { Password: "", api_key: "", token: "", secret: true } }] },
    ],
    ["exec", container({ registry: { password: "s" } }), container({ registry: { password: "" } })],
    ["snmp", { port: 161 }, { port: 161 }],
    ...[
      "authToken",
      "AUTH_TOKEN",
      "access.token",
      "Passwd",
      "encryptionKey",
      "sharedKey",
      "signing-key",
      "webhookSecret",
      "privPassword",
      "credentials",
      "apiKeys",
      "ｐassword",
    ].map((name): [SectionName, JsonObject, JsonObject] => [
      "alert",
      { targets: { a: [{ [name]: ["s"] }] } },
      { targets: { a: [{ [name]: "" }] } },
    ]),
    [
      "snmp",
      { users: [{ Community: "s" }], traps: { communityString: "s" } },
      { users: [{ Community: "" }], traps: { communityString: "" } },
    ],
    ["apigw", { enabled: true, key: "s", privateKey: "s" }, { enabled: true, key: "", privateKey: "" }],
    ["_bgp", { groups: [{ name: "g", community: "65000:1" }] }, { groups: [{ name: "g", community: "65000:1" }] }],
    ["alert", { publicKey: "k", tokenUrl: "u", keyId: "i" }, { publicKey: "k", tokenUrl: "u", keyId: "i" }],
  ])("of %s %j shows %j", (section, body, shown) => {
    const before = structuredClone(body);
    expect(hideSecrets({ [section]: body, core: { a: 1 } })).toEqual({ [section]: shown, core: { a: 1 } });
    expect(body).toEqual(before);
  });
});

describe("keepSecrets", () => {
  it.each<[string, SectionName, JsonObject, unknown, JsonObject]>([
    ["empty", "network", tunnel("a", { psk: "" }), tunnel("a", { psk: "s" }), tunnel("a", { psk: "s" })],
    [
      "absent",
      "network",
      tunnel("a", { mtu: 2 }),
      tunnel("a", { psk: "s", mtu: 1 }),
      tunnel("a", { mtu: 2, psk: "s" }),
    ],
    ["new", "network", tunnel("a", { psk: "t" }), tunnel("a", { psk: "s" }), tunnel("a", { psk: "t" })],
    ["of another item", "network", tunnel("b", { psk: "" }), tunnel("a", { psk: "s" }), tunnel("b", { psk: "" })],
    ["of a nameless item", "network", { tunnels: [{}] }, { tunnels: [{ psk: "s" }] }, { tunnels: [{}] }],
    [
      "below two arrays",
      "_bgp",
      peer("192.0.2.1", {}),
      peer("192.0.2.1", { secret: "s" }),
      peer("192.0.2.1", { secret: "s" }),
    ],
    ["of another peer", "_bgp", peer("192.0.2.2", {}), peer("192.0.2.1", { secret: "s" }), peer("192.0.2.2", {})],
    [
      "at the top",
      "snmp",
      { authPassphrase: "" },
      { authPassphrase: "s", privacyPassphrase: "t" },
      { authPassphrase: "s", privacyPassphrase: "t" },
    ],
    ["null", "snmp", { authPassphrase: null }, { authPassphrase: "s" }, { authPassphrase: "s" }],
    ["below an object", "vpn", client("c", {}), client("c", { presharedKey: "s" }), client("c", { presharedKey: "s" })],
    [
      "rightly empty",
      "exec",
      container({ variables: [{ name: "A", value: "" }] }),
      container({ variables: [{ name: "A", value: "s" }] }),
      container({ variables: [{ name: "A", value: "" }] }),
    ],
    ["of nothing stored", "snmp", { authPassphrase: "" }, undefined, { authPassphrase: "" }],
    ["of another shape", "network", { tunnels: {} }, tunnel("a", { psk: "s" }), { tunnels: {} }],
  ])("keeps a secret that is %s", (_, section, body, stored, whole) => {
    expect(keepSecrets(section, body, stored)).toEqual(whole);
  });

  it("keeps a secret by its name, of the same item", () => {
    const stored = {
      targets: [
        { id: "1", http: { password: "a" } },
        { id: "2", http: { password: "b" } },
      ],
      token: "c",
    };
    const body = { targets: [{ id: "2", http: { password: "" } }, { http: { password: "" } }], token: "" };
    expect(keepSecrets("dns", body, stored)).toEqual({
      targets: [{ id: "2", http: { password: "b" } }, { http: { password: "" } }],
      token: "c",
    });
  });

  it("keeps a secret of any such name", () => {
    const stored = { users: [{ name: "a", authToken: "t" }] };
    const body = { users: [{ name: "a", authToken: "" }] };
    expect(keepSecrets("dns", body, stored)).toEqual(stored);
  });

  it("drops stored secrets that a closed section has no field for", () => {
    const stored = { enabled: true, authPassphrase: "s", community: "c", users: [{ name: "a", token: "t" }] };
    expect(keepSecrets("snmp", { enabled: false }, stored)).toEqual({ enabled: false, authPassphrase: "s" });
    expect(keepSecrets("apigw", { enabled: false }, { privateKey: "k" })).toEqual({ enabled: false });
  });

  it("finds an item that moved", () => {
    const stored = {
      tunnels: [
        { name: "a", type: "gre", psk: "1" },
        { name: "b", type: "gre", psk: "2" },
      ],
    };
    const body = { tunnels: [{ name: "b", type: "gre" }] };
    expect(keepSecrets("network", body, stored)).toEqual({ tunnels: [{ name: "b", type: "gre", psk: "2" }] });
  });
});
