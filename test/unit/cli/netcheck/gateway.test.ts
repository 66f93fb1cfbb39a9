import { expect, test } from "vitest";
import { checkPath, type PathTarget } from "../../../../src/cli/netcheck/gateway.ts";
import { freePort } from "../../../support/machine/programs.ts";
import { GATEWAY_1 } from "../../../support/overlay/scripted-tunnels.ts";
import { byCheck, someTools, startGateway, startTcp } from "./rig.ts";

const target = (changes: Partial<PathTarget>): PathTarget => ({
  gateway: GATEWAY_1,
  id: "",
  host: "gw.test",
  port: 8443,
  isDefault: true,
  name: "gw-1.example.net",
  ...changes,
});

test("a gateway that proves its key passes everything", async () => {
  const { port, key } = await startGateway();
  const found = byCheck(await checkPath(target({ port, key }), someTools()));
  expect(found).toEqual({
    dns: { status: "pass", message: "gw.test is 127.0.0.1" },
    tcp: {
      status: "pass",
      message: expect.stringMatching(new RegExp(`^127.0.0.1:${port} answers in \\d+ ms$`)) as string,
    },
    tls: { status: "pass", message: "it has the gateway's key" },
    udp: { status: "skip", message: "tunnels use TCP alone in this version" },
    mtu: { status: "pass", message: "1500 bytes get there whole" },
  });
});

test("another key fails, and an unknown one is skipped", async () => {
  const { port } = await startGateway();
  const other = byCheck(await checkPath(target({ port, key: "k".repeat(43) }), someTools()));
  expect(other["tls"]).toEqual({
    status: "fail",
    message: "it has another key than the gateway's",
    fix: `exempt gw.test:${port} from TLS inspection, and see that no other machine has that address`,
  });
  expect(byCheck(await checkPath(target({ port }), someTools()))["tls"]).toMatchObject({ status: "skip" });
});

test("a peer without TLS, or a silent one, fails TLS only", async () => {
  const port = await startTcp((socket) => socket.end("220 mail.example.net ESMTP\r\n"));
  const found = byCheck(await checkPath(target({ port, key: "k".repeat(43) }), someTools()));
  expect(found["tcp"]?.status).toBe("pass");
  expect(found["tls"]).toMatchObject({ status: "fail", fix: expect.stringContaining(`gw.test:${port}`) as string });
  const silent = await startTcp(() => undefined);
  const hung = byCheck(await checkPath(target({ port: silent, key: "k".repeat(43) }), someTools({ timeoutMs: 200 })));
  expect(hung["tls"]?.message).toBe(`no TLS with 127.0.0.1:${silent}: no answer within 0.2 s`);
});

test("a closed port, a missing source address, and the skipped checks", async () => {
  const port = await freePort();
  const found = byCheck(await checkPath(target({ port }), someTools()));
  expect(found["tcp"]).toEqual({
    status: "fail",
    code: "refused",
    message: `127.0.0.1:${port} refused the connection`,
    fix: `let TCP port ${port} to gw.test out through every firewall`,
  });
  expect([found["tls"]?.status, found["mtu"]?.status]).toEqual(["skip", "skip"]);
  const foreign = byCheck(await checkPath(target({ port, local: "203.0.113.9" }), someTools()));
  expect(foreign["tcp"]).toMatchObject({
    status: "fail",
    message: `127.0.0.1:${port} the address to leave from is not there`,
    fix: expect.stringContaining("also from 203.0.113.9") as string,
  });
});

test("an unknown name, and a silent resolver", async () => {
  const found = byCheck(await checkPath(target({ host: "gw.invalid" }), someTools()));
  expect(found["dns"]).toMatchObject({ status: "fail", message: "gw.invalid: no such name" });
  expect([found["tcp"]?.status, found["tls"]?.status, found["mtu"]?.status]).toEqual(["skip", "skip", "skip"]);
  const hanging = someTools({ timeoutMs: 50, resolve: () => new Promise(() => undefined) });
  expect(byCheck(await checkPath(target({}), hanging))["dns"]?.message).toBe("gw.test: no answer within 0.05 s");
});

test("Ctrl-C ends the checks at once", async () => {
  const control = new AbortController();
  const port = await startTcp(() => undefined);
  const checking = checkPath(target({ port }), someTools({ signal: control.signal, timeoutMs: 60_000 }));
  control.abort(new Error("interrupted"));
  await expect(checking).rejects.toThrow("interrupted");
});
