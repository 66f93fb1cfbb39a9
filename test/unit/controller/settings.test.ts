import { expect, test } from "vitest";
import { controllerSettings, isLoopback, tlsModeOf } from "../../../src/controller/settings.ts";

const PIN = "A".repeat(43);
const BASE = { listen: "127.0.0.1:8480", dataDir: "/data" };

test.each([
  ["127.0.0.1:8480", { host: "127.0.0.1", port: 8480 }],
  ["localhost:0", { host: "localhost", port: 0 }],
  ["[::1]:443", { host: "::1", port: 443 }],
])("%s is understood", (listen, expected) => {
  expect(controllerSettings({ ...BASE, listen }).listen).toEqual(expected);
});

test.each([
  ["--listen", { listen: "8480" }],
  ["--listen", { listen: "::1:443" }],
  ["--listen", { listen: "host:65536" }],
  ["--listen", { listen: ":80" }],
  ["--data", { dataDir: "" }],
  ["--url", { publicUrl: "https://cp.example/path" }],
  ["--url", { listen: "0.0.0.0:443" }],
  ["--domain", { domain: "Not A Domain" }],
  ["--tls-key", { tlsCert: "/cert.pem" }],
  ["--registry", { registryUrl: "registry:5000" }],
  ["--registry-host", { registryUrl: "http://127.0.0.1:5000", registryHost: "a/b" }],
  ["--registry-host", { registryHost: "registry.example" }],
  ["heartbeatSeconds", { heartbeatSeconds: 5 }],
  ["--front-pin", { publicUrl: "https://cp.example" }],
  ["--front-pin", { publicUrl: "https://cp.example", frontPins: [] }],
  ["--front-pin", { publicUrl: "https://cp.example", frontPins: ["short"] }],
  ["--front-pin", { publicUrl: "https://cp.example", frontPins: Array.from({ length: 8 }, () => PIN) }],
  ["--front-pin", { frontPins: [PIN] }],
  ["--front-pin", { publicUrl: "http://127.0.0.1:9000", frontPins: [PIN] }],
])("a wrong %s is named as the operator knows it", (option, change) => {
  const check = (): unknown => controllerSettings({ ...BASE, ...change });
  expect(check).toThrow(option);
  expect(check).not.toThrow(/\b(dataDir|publicUrl|tlsCert|tlsKey|frontPins)\b/);
});

test.each([
  [{}, "none"],
  [{ listen: "localhost:1" }, "none"],
  [{ tls: "self" as const }, "self"],
  [{ listen: "192.0.2.1:443" }, "self"],
  [{ tlsCert: "/c", tlsKey: "/k" }, "files"],
])("%j is served with TLS %s", (change, mode) => {
  expect(tlsModeOf(controllerSettings({ ...BASE, ...change }))).toBe(mode);
});

test.each([
  ["127.8.9.1", true],
  ["::1", true],
  ["localhost", true],
  ["127.example.net", false],
  ["10.0.0.1", false],
])("%s is loopback: %s", (host, expected) => {
  expect(isLoopback(host)).toBe(expected);
});

test.each([Number("x"), -1, 0.5, 604_801])(
  "an overlap of %s seconds is refused by its option",
  (secretOverlapSeconds) => {
    const input = { listen: "127.0.0.1:1", dataDir: "/d", secretOverlapSeconds };
    expect(() => controllerSettings(input)).toThrow(/--secret-overlap: /);
  },
);
