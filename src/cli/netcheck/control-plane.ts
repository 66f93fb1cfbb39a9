import { AgentError, toError } from "../../errors.ts";
import { dialRequestFor, hostDialler, type Dialled } from "../../host/net/dial.ts";
import { httpHead, openTcp, type HttpHead } from "../../host/net/net-probe.ts";
import { formatDuration } from "../../lib/text/durations.ts";
import { isLoopback, proxyFor, type ProxySettings } from "../../lib/net/proxy.ts";
import { checkMtu } from "./mtu.ts";
import { failed, passed, skipped, type CheckName, type Finding } from "./result.ts";
import { checkName, checkTcp, tried, wordsOf, type CheckTools } from "./tools.ts";

/** A control plane to check: origin, pinned key hashes and the agent's proxies. */
export interface ControlPlaneTarget {
  readonly url: URL;
  readonly pins: readonly string[];
  readonly proxies: ProxySettings;
}

const CLOCK_LIMIT_MS = 60_000;
/** Path for requests that no control plane answers with success. */
const PROBE_PATH = "/agent/v1/session";

/** Checks the path to the control plane. */
export async function checkControlPlane(target: ControlPlaneTarget, tools: CheckTools): Promise<readonly Finding[]> {
  const { url, proxies } = target;
  const { host, port, tls } = dialRequestFor(url, [], tools.timeoutMs);
  const proxy = proxyFor(proxies, host, port, tls !== undefined);
  const [direct, secured] = await Promise.all([
    proxy === undefined ? checkDirect(target, tools) : Promise.resolve(throughProxy(proxy)),
    checkAnswer(target, proxy, tools),
  ]);
  const [dns, ...below] = direct;
  return [
    ...(dns === undefined ? [] : [dns]),
    proxyFinding(target, proxy, secured.failure),
    ...secured.findings,
    ...below,
  ].toSorted((a, b) => ORDER.indexOf(a.check) - ORDER.indexOf(b.check));
}

const ORDER: readonly CheckName[] = ["dns", "proxy", "tcp", "tls", "http", "clock", "captive-portal", "mtu"];

/** With a proxy the node itself neither resolves nor connects. */
function throughProxy({ host }: URL): readonly Finding[] {
  const why = `the proxy ${host} does it`;
  return [
    skipped("dns", why),
    skipped("tcp", why),
    ...(["captive-portal", "mtu"] as const).map((name) => skipped(name, `everything goes through the proxy ${host}`)),
  ];
}

async function checkDirect({ url }: ControlPlaneTarget, tools: CheckTools): Promise<readonly Finding[]> {
  const { host, port, tls } = dialRequestFor(url, [], tools.timeoutMs);
  const dns = await checkName(host, tools);
  if (dns.value.length === 0) {
    const rest = ["tcp", "captive-portal", "mtu"] as const;
    return [dns.finding, ...rest.map((name) => skipped(name, "needs an address"))];
  }
  const fix = `see that it runs, let TCP port ${port} to ${host} out through every firewall, or set HTTPS_PROXY`;
  const [tcp, portal] = await Promise.all([
    checkTcp(
      dns.value.map((address) => ({ address, port })),
      fix,
      tools,
    ),
    tls === undefined || isLoopback(host)
      ? skipped("captive-portal", "the control plane is on this machine")
      : checkPortal(url, dns.value, tools),
  ]);
  const [address] = tcp.value;
  const mtu =
    address === undefined ? skipped("mtu", "needs an address that answers") : await checkMtu(address, undefined, tools);
  return [dns.finding, tcp.finding, portal, mtu];
}

interface Answered {
  readonly findings: readonly Finding[];
  /** Explains why there is no connection. */
  readonly failure: Error | undefined;
}

/** Connects as the agent does, through the proxy if there is one, and sends an HTTP request. */
async function checkAnswer(target: ControlPlaneTarget, proxy: URL | undefined, tools: CheckTools): Promise<Answered> {
  const { url, pins, proxies } = target;
  const request = { ...dialRequestFor(url, pins, tools.timeoutMs), plainOnlyLoopback: true };
  let dialled: Dialled;
  try {
    dialled = await tried(tools, (signal) => hostDialler(tools.clock, proxies, tools.resolve).dial(request, signal));
  } catch (error) {
    tools.signal.throwIfAborted();
    const failure = toError(error);
    const skips = (["http", "clock"] as const).map((name) => skipped(name, "needs a connection"));
    return { findings: [tlsFailure(url, failure), ...skips], failure };
  }
  const tls = tlsFinding(target, dialled.tlsKey);
  try {
    const head = await tried(tools, (signal) => httpHead(dialled.socket, new URL(PROBE_PATH, url), signal));
    const now = tools.clock.now();
    return {
      findings: [tls, passed("http", `it answers with status ${head.status}`), clockFinding(head, now)],
      failure: undefined,
    };
  } catch (error) {
    dialled.socket.destroy();
    const what = proxy === undefined ? "it does not speak HTTP" : "nothing comes through the proxy";
    const http = failed("http", `${what}: ${wordsOf(error, tools)}`, `see whether ${url.host} is the control plane`);
    return { findings: [tls, http, skipped("clock", "needs an answer")], failure: undefined };
  }
}

function tlsFinding({ pins }: ControlPlaneTarget, tlsKey: string | undefined): Finding {
  if (tlsKey === undefined) return skipped("tls", "the control plane is on this machine, without TLS");
  const how = pins.includes(tlsKey)
    ? "its key is the pinned one"
    : "its certificate is trusted, and its key not pinned";
  return passed("tls", how);
}

function tlsFailure(url: URL, error: Error): Finding {
  const code = error instanceof AgentError ? error.code : "";
  if (code === "tls-untrusted" || code === "tls-failed") {
    return failed("tls", error.message, `exempt ${url.host} from TLS inspection`, "altered");
  }
  if (code === "insecure") return failed("tls", error.message, "have the control plane serve https");
  return skipped("tls", "needs a connection");
}

function proxyFinding(
  { url, proxies }: ControlPlaneTarget,
  proxy: URL | undefined,
  failure: Error | undefined,
): Finding {
  if (proxies.https === undefined) return skipped("proxy", "none is set");
  const { host } = proxies.https;
  if (proxy === undefined) return skipped("proxy", `${host} is not for ${url.hostname}`);
  const code = failure instanceof AgentError ? failure.code : "";
  const isThrough = failure === undefined || code === "tls-untrusted" || code === "tls-failed";
  if (isThrough) return passed("proxy", `${host} leads to ${url.host}`);
  const fix = `see that the proxy lets CONNECT to ${url.host} through, with the right password, or change HTTPS_PROXY`;
  return failed("proxy", failure.name === "TimeoutError" ? `${host} does not answer in time` : failure.message, fix);
}

function clockFinding({ date }: HttpHead, now: number): Finding {
  if (date === undefined) return skipped("clock", "the control plane sends no time");
  const ahead = now - date;
  // The header has whole seconds.
  if (Math.abs(ahead) < 2000) return passed("clock", "within two seconds of the control plane");
  const message = `${formatDuration(Math.abs(ahead))} ${ahead > 0 ? "ahead of" : "behind"} the control plane`;
  if (Math.abs(ahead) <= CLOCK_LIMIT_MS) return passed("clock", message);
  return failed("clock", message, "check the time synchronisation of this machine");
}

/** Reports whether somebody else answers in the control plane's place where nothing is encrypted, as a portal does before one has logged in. */
async function checkPortal(url: URL, addresses: readonly string[], tools: CheckTools): Promise<Finding> {
  const [address = ""] = addresses;
  const plain = new URL(`http://${url.hostname}${PROBE_PATH}`);
  let head: HttpHead;
  try {
    head = await tried(tools, async (signal) => httpHead(await openTcp({ address, port: 80 }, signal), plain, signal));
  } catch {
    tools.signal.throwIfAborted();
    return passed("captive-portal", "no captive portal answers plain HTTP");
  }
  return portalFinding(url, head);
}

/** Judges an answer to plain HTTP. Pure. */
export function portalFinding(url: URL, { status, location }: Pick<HttpHead, "status" | "location">): Finding {
  const target = location === undefined ? undefined : URL.parse(location, `http://${url.hostname}/`);
  const isElsewhere = target !== undefined && target !== null && target.hostname !== url.hostname;
  const fix = "log in to the network's portal with a browser, or ask for this machine to be let through";
  if (status === 511) return failed("captive-portal", "the network wants a login (RFC 6585 §6)", fix);
  if (status >= 300 && status < 400 && isElsewhere) {
    return failed("captive-portal", `plain HTTP is sent on to ${target.host}`, fix);
  }
  return passed("captive-portal", `plain HTTP is answered with status ${status} and not sent elsewhere`);
}
