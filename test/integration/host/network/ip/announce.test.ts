import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { expect, onTestFinished, test } from "vitest";
import { arpAnnouncer } from "../../../../../src/host/network/ip/announce.ts";
import { fakeTools } from "../../../../support/fake-tools.ts";
import { waitFor } from "../../../../support/wait-for.ts";

const signal = new AbortController().signal;
const LINKS = `
ip link add wan0 type veth peer name far0 && ip link set far0 up && ip link set wan0 up
ip address add 10.77.0.1/24 dev wan0 && ip address add 10.77.0.50/32 dev wan0
echo up && exec sleep 600`;
const USER = process.getuid?.() === 0 ? [] : ["-r"];

/** Two ends of a cable, and the packets at the far one. */
async function cable() {
  const holder = spawn("unshare", [...USER, "-n", "sh", "-c", LINKS], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void holder.kill("SIGKILL"));
  await once(holder.stdout, "data");
  const enter = [
    "nsenter",
    "-t",
    String(holder.pid),
    ...(USER.length > 0 ? ["-U", "--preserve-credentials"] : []),
    "-n",
  ];
  const seen = { text: "" };
  const command = ["tcpdump", "-l", "-n", "-e", "-i", "far0", "arp"];
  const capture = spawn("nsenter", [...enter, ...command], { stdio: ["ignore", "pipe", "pipe"] });
  onTestFinished(() => void capture.kill("SIGKILL"));
  capture.stdout.setEncoding("utf8").on("data", (text: string) => (seen.text += text));
  await once(capture.stderr, "data");
  const mac = execFileSync("nsenter", [...enter, "ip", "-o", "link", "show", "wan0"], {
    encoding: "utf8",
  });
  return { enter, seen, mac: /ether (\S+)/.exec(mac)?.[1] ?? "" };
}

test("announces the address three times to the neighbours, and not the address of the interface", async () => {
  const { enter, seen, mac } = await cable();
  const { exec } = fakeTools({ arping: `exec nsenter ${enter.join(" ")} /usr/sbin/arping "$@"` });
  await arpAnnouncer(exec)("wan0", "10.77.0.50", signal);
  const received = (): readonly string[] => seen.text.split("\n").filter((line) => line.includes("who-has"));
  await waitFor("three are heard", () => received().length === 3);
  for (const line of received()) {
    expect(line).toContain(`${mac} > ff:ff:ff:ff:ff:ff`);
    expect(line).toMatch(/who-has 10\.77\.0\.50 .*tell 10\.77\.0\.50,/);
  }
});

test("reports the other program of the same name in its own words, and tries it first from then on", async () => {
  const tools = fakeTools({
    arping: `case "$*" in *-S*) echo "arping: invalid option -- 'i'" >&2; exit 2;; *) echo "Sent 3 probes (3 broadcast(s))";; esac`,
  });
  const announce = arpAnnouncer(tools.exec);
  await announce("wan0", "10.77.0.50", signal);
  await announce("wan0", "10.77.0.51", signal);
  expect(tools.calls("arping")).toEqual([
    "-U -c 3 -i wan0 -S 10.77.0.50 -- 10.77.0.50",
    "-U -c 3 -I wan0 -- 10.77.0.50",
    "-U -c 3 -I wan0 -- 10.77.0.51",
  ]);
});

test("reports its output when nothing was sent", async () => {
  const { exec } = fakeTools({ arping: `echo "arping: libnet_init: no such device" >&2; exit 1` });
  await expect(arpAnnouncer(exec)("gone0", "10.77.0.50", signal)).rejects.toMatchObject({
    code: "exec-failed",
    message: "arping on gone0: arping: libnet_init: no such device",
  });
});
