import { beforeAll, expect, test } from "vitest";
import { containerStage, type ContainerStage } from "../../support/containers/reached-stage.ts";
import { fileEnd } from "../../support/file-end.ts";
import { sampleOf } from "../../support/sample.ts";

const onFinished = fileEnd();
let stage: ContainerStage;

// Each test begins without containers; what others have left on the machine's links and routes does no harm.
beforeAll(async () => {
  stage = await containerStage(onFinished);
});

const LIMIT = { interval: 300 };
/** Seconds in which a busy machine answers, too. */
const SURELY = 60;
const port = (iface: string, hostPort: number, containerPort = 80, protocol = "tcp") => ({
  uid: `${iface}-${protocol}-${hostPort}`,
  protocol,
  iface,
  hostPort,
  containerPort,
});

test("mapped ports lead to containers, from outside and from the machine itself", async () => {
  const { here, there, get } = stage;
  here(
    "ip link add dmz0 type veth peer name dmz1 && ip addr add 10.78.0.1/24 dev dmz0 && ip link set dmz0 up && ip link set dmz1 up",
  );
  there("ip route add 10.78.0.0/24 via 10.77.0.1");
  const first = await stage.add("first", {
    portMappings: [port("wan0", 8080), port("wan0", 5300, 5300, "udp")],
  });
  await expect.poll(() => get("there", "10.77.0.1:8080"), LIMIT).toBe("first");
  expect(get("here", "10.77.0.1:8080", SURELY)).toBe("first");
  await stage.echoUdp(first);
  await expect.poll(() => stage.sendUdp("10.77.0.1", 5300), LIMIT).toBe("hello");
  const engineId = await stage.engineIdOf(first);

  // Anything unmapped is unreachable: another port, another interface's address, and the container itself.
  expect(get("there", "10.77.0.1:80")).toBe("");
  there(`ip route add 172.18.0.0/16 via 10.77.0.1`);
  expect(get("there", `${await stage.addressOf(first)}`)).toBe("");

  // A new address of the interface is served too, and a removed one is not; the container stays unchanged.
  here("ip addr add 10.77.0.9/24 dev wan0");
  await expect.poll(() => get("there", "10.77.0.9:8080"), LIMIT).toBe("first");
  await expect.poll(() => get("here", "10.77.0.9:8080"), LIMIT).toBe("first");

  // A program of the machine keeps its port, and the container runs all the same.
  const listen = 'require("node:net").createServer((s) => s.end("program")).listen(8090)';
  stage.start("here", process.execPath, "-e", listen);
  await expect.poll(() => get("there", "10.77.0.1:8090"), LIMIT).toBe("program");
  const second = await stage.add("second", { portMappings: [port("wan0", 8090), port("dmz0", 8081)] });
  await expect.poll(() => get("there", "10.78.0.1:8081"), LIMIT).toBe("");
  await expect.poll(() => get("here", "10.78.0.1:8081"), LIMIT).toBe("second");
  expect(get("there", "10.77.0.1:8090", SURELY)).toBe("program");
  await expect
    .poll(() => stage.whyText(), LIMIT)
    .toContain("tcp port 8090 on wan0 is in use by a program of this machine");

  // Another program flushes the table, or removes the rule from the engine's chain.
  here("nft flush table inet holdfast_containers; iptables -F DOCKER-USER");
  expect(get("there", "10.77.0.1:8080")).toBe("");
  here("ip addr add 10.77.0.10/24 dev wan0");
  await expect.poll(() => get("there", "10.77.0.1:8080"), LIMIT).toBe("first");

  // Another program deletes the link of the containers: it is created again, without a restart.
  const pid = await stage.pidOf(first);
  here("ip link delete holdfast0");
  await expect.poll(() => get("there", "10.77.0.1:8080"), LIMIT).toBe("first");
  await expect.poll(() => get("here", "10.78.0.1:8081"), LIMIT).toBe("second");
  expect(here("ip addr show holdfast0")).toContain("172.18.0.1/16");
  expect(await stage.pidOf(first)).toBe(pid);

  // The agent is killed or stopped, and restarts: nothing is cut or created again.
  for (const signal of sampleOf(["SIGKILL", "SIGTERM"] as const, 1, "networked agent")) {
    await stage.restartAgent(signal);
    expect(get("there", "10.77.0.1:8080", SURELY)).toBe("first");
  }
  expect(await stage.engineIdOf(first)).toBe(engineId);

  // The engine restarts.
  await stage.engine.restart();
  here("iptables -P FORWARD DROP");
  await expect.poll(() => get("there", "10.77.0.1:8080"), LIMIT).toBe("first");
  expect(await stage.engineIdOf(first)).toBe(engineId);

  // First another one has the mapping, and then none.
  await stage.configure(first, { portMappings: [port("wan0", 5300, 5300, "udp")] });
  await stage.configure(second, { portMappings: [port("wan0", 8080)] });
  await expect.poll(() => get("there", "10.77.0.1:8080"), LIMIT).toBe("second");
  expect(await stage.engineIdOf(first)).toBe(engineId);
  await stage.configure(second, {});
  await expect.poll(() => get("there", "10.77.0.1:8080"), LIMIT).toBe("");
  await stage.remove(first);
  await stage.remove(second);
  await expect.poll(() => here("nft list tables; iptables -S DOCKER-USER"), LIMIT).not.toContain("holdfast");
  await expect.poll(() => here("ip link"), LIMIT).not.toContain("holdfast0");
});

test("containers reach each other, reach out as the machine, and stay in their network", async () => {
  const { here, there, get } = stage;
  const first = await stage.add("first", { ip: "172.18.7.7" });
  const second = await stage.add("second", { portMappings: [port("wan0", 8080)] });
  expect(await stage.addressOf(first)).toBe("172.18.7.7");

  // By name, and out through the machine's own address.
  const ask = (id: string, host: string) =>
    stage.run(id, ["sh", "-c", `printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 ${host} 80`]);
  await expect.poll(() => ask(second, "first"), LIMIT).toContain("first");
  const serve = 'require("node:http").createServer((q, r) => r.end(q.socket.remoteAddress)).listen(80, "10.77.0.2")';
  stage.start("there", process.execPath, "-e", serve);
  await expect.poll(() => ask(second, "10.77.0.2"), LIMIT).toContain("10.77.0.1");

  // With a missing VRF the container waits; with one without a path out nothing outside is reachable.
  await stage.configure(second, { portMappings: [port("wan0", 8080)], vrf: { name: "red" } });
  await expect.poll(() => stage.whyText(), LIMIT).toContain("the VRF red is not set up on this node");
  await expect
    .poll(() => here("ip rule show"), LIMIT)
    .toContain(`from ${await stage.addressOf(second)} unreachable proto 219`);
  expect(await ask(second, "10.77.0.2")).not.toContain("10.77.0.1");
  await stage.configure(second, { portMappings: [port("wan0", 8080)] });
  await expect.poll(() => ask(second, "10.77.0.2"), LIMIT).toContain("10.77.0.1");
  await expect.poll(() => here("ip rule show"), LIMIT).not.toContain("219");

  // Everything that arrives on an interface is passed on.
  here("ip link add tun0 type veth peer name tun1 && ip addr add 10.79.0.1/24 dev tun0 && ip link set tun0 up");
  here(`ip link set tun1 netns ${stage.pidThere}`);
  there("ip addr add 10.79.0.2/24 dev tun1; ip link set tun1 up; ip route add 10.200.0.0/16 via 10.79.0.1");
  await stage.configure(first, { interfaces: [{ uid: "i", name: "tun0", dest: "10.200.0.1" }] });
  await expect.poll(() => get("there", "10.200.0.1:80"), LIMIT).toBe("first");
  await stage.engine.call("POST", `/containers/holdfast-${first}/restart?t=0`);
  await expect.poll(() => get("there", "10.200.0.1:80"), LIMIT).toBe("first");
  await stage.configure(first, {});
  await expect.poll(() => here("ip link; ip rule"), LIMIT).not.toMatch(/hfc|219/);

  // Virtual networks are reported as unsupported.
  await stage.configure(second, {
    portMappings: [port("wan0", 8080)],
    virtualNetworks: [{ uid: "v", network: "core", ip: "172.21.0.10" }],
  });
  await expect.poll(() => stage.whyText(), LIMIT).toContain("core: virtual networks are not supported");
  await stage.configure(second, { portMappings: [port("wan0", 8080)] });

  // Another range: one of the machine's own changes nothing, a free one moves all.
  await stage.remove(first);
  await expect.poll(() => get("there", "10.77.0.1:8080"), LIMIT).toBe("second");
  const engineId = await stage.engineIdOf(second);
  await stage.setNetwork({ bridgeCIDR: "10.77.0.0/16" });
  await expect.poll(() => stage.whyText(), LIMIT).toContain("wan0 has 10.77.0.1");
  expect(get("there", "10.77.0.1:8080", SURELY)).toBe("second");
  await stage.setNetwork({ bridgeCIDR: "10.77.0.128/25" });
  await expect.poll(() => stage.whyText(), LIMIT).toContain("wan0 has 10.77.0.1/24, whose network overlaps");
  expect(get("there", "10.77.0.1:8080", SURELY)).toBe("second");
  expect(await stage.engineIdOf(second)).toBe(engineId);
  await stage.setNetwork({ bridgeCIDR: "172.30.0.0/24" });
  await expect.poll(() => stage.addressOf(second), LIMIT).toMatch(/^172\.30\.0\./);
  await expect.poll(() => get("there", "10.77.0.1:8080"), LIMIT).toBe("second");
  expect(here("ip addr show holdfast0")).toContain("172.30.0.1/24");
  await stage.remove(second);
});

test("a container in a VRF reaches what the VRF reaches, and nothing else", async () => {
  const { here, there } = stage;
  here("ip link add red0 type veth peer name red1 && ip link set red0 up");
  here(`ip link set red1 netns ${stage.pidThere}`);
  there("ip addr add 10.90.0.2/24 dev red1; ip link set red1 up");
  for (const address of ["10.77.0.2", "10.90.0.2"]) {
    const serve = `require("node:http").createServer((q, r) => r.end(q.socket.remoteAddress)).listen(80, "${address}")`;
    stage.start("there", process.execPath, "-e", serve);
  }
  await stage.setNetwork({
    interfaces: [{ nic: "red0", ip: "10.90.0.1/24", vrf: "red" }],
    vrfs: [{ name: "red" }],
  });
  await expect.poll(() => here("ip -4 addr show red0"), LIMIT).toContain("10.90.0.1/24");
  const id = await stage.add("first", { vrf: { name: "red" }, portMappings: [port("red0", 8080)] });
  const ask = (host: string) => stage.run(id, ["sh", "-c", `printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 ${host} 80`]);
  await expect.poll(() => ask("10.90.0.2"), LIMIT).toContain("10.90.0.1");
  expect(await ask("10.77.0.2")).not.toContain("10.77.0.1");
  await expect.poll(() => stage.get("there", "10.90.0.1:8080"), LIMIT).toBe("first");

  // The VRF is removed, and with it every path out.
  await stage.setNetwork({ interfaces: [{ nic: "red0", ip: "10.90.0.1/24" }] });
  await expect.poll(() => stage.whyText(), LIMIT).toContain("the VRF red is not set up on this node");
  expect(await ask("10.77.0.2")).not.toContain("10.77.0.1");
  expect(await ask("10.90.0.2")).not.toContain("10.90.0.1");
});
