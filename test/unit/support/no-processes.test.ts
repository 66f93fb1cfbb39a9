import { exec, execFileSync, spawn, spawnSync } from "node:child_process";
import { createSocket } from "node:dgram";
import { connect, createServer } from "node:net";
import { execa } from "execa";
import { expect, onTestFinished, test } from "vitest";

test("refuses a unit test that starts a process", async () => {
  const refused = "a unit test must not start";
  for (const start of [() => spawn("true"), () => spawnSync("true"), () => exec("true"), () => execFileSync("true")]) {
    expect(start).toThrow(refused);
  }
  await expect(execa("true")).rejects.toThrow(refused);
});

test("and one that uses a socket beyond the loopback interface", () => {
  const udp = createSocket("udp4");
  onTestFinished(() => void udp.close());
  expect(() => connect(80, "192.0.2.1")).toThrow("a unit test must not connect to 192.0.2.1");
  expect(() => connect({ host: "2001:db8::1", port: 80 })).toThrow("connect to 2001:db8::1");
  expect(() => createServer().listen({ host: "192.0.2.1", port: 0 })).toThrow("listen on 192.0.2.1");
  expect(() => udp.bind({ address: "192.0.2.1", port: 0 })).toThrow("bind to 192.0.2.1");
  expect(() => udp.send("x", 9, "192.0.2.1")).toThrow("send to 192.0.2.1");
  expect(() => udp.send(Buffer.from("xy"), 0, 1, 9, "192.0.2.1")).toThrow("send to 192.0.2.1");
});
