// What the lab shows: the commands of docs/guide/lab.md, and what each must answer.
import type { Stop } from "../demo-tour.ts";

const LAB = "scripts/lab";
const WEB = "http://192.168.1.2:8080";
const CONTROLLER = "203.0.113.10";
const INTERFACES = `"interfaces":[{"nic":"eth0","ip":"192.168.1.2/24","gateway":"192.168.1.1","addIps":["192.168.1.20/24"]}]`;
const GOOD = `{${INTERFACES}}`;
const WALL = `{${INTERFACES},"rules":[{"protocol":"any","source":"${CONTROLLER}/32","dest":"0.0.0.0/0","action":"drop"}]}`;
const LOOK = "ip -4 address; ip -4 route; ip rule; nft -s list ruleset";

/** The stops in order; each command is in docs/guide/lab.md in the same form. */
export const tour: readonly Stop[] = [
  {
    title: "a page of the web server on site B, through a connector on site A",
    command: `${LAB} exec client curl -s --retry 30 --retry-all-errors --retry-delay 1 ${WEB}/`,
    expect: /Hello from site B/,
  },
  {
    title: "the gateways of A: which one carries, since when and why",
    command: `${LAB} exec a holdfast gateways`,
    expect: /gw1\.lab\.example .* up .*carries[^]*gw2\.lab\.example .* up /,
    // On a busy machine gateway 2 may be reached first; the default path takes over when it has been up for ten seconds.
    isEventual: true,
  },
  {
    title: "cut gateway 1 in the middle of a download, which goes on by gateway 2",
    command: [
      `${LAB} exec client sh -c 'until curl -s -C - --limit-rate 16M -o .lab/large ${WEB}/large; do date +"cut at %T"; done; date +"done at %T"' &`,
      `sleep 2; ${LAB} cut gw1; wait`,
      `sha256sum .lab/large; ${LAB} exec client curl -s ${WEB}/large.sha256`,
    ].join("\n"),
    expect: /cut at [^]*done at .*\n([0-9a-f]{64}) [^]*\1 /,
  },
  {
    title: "what A says of it now",
    command: `${LAB} exec a holdfast gateways`,
    expect: /gw1\.lab\.example .* down [^]*gw2\.lab\.example .* up .*carries/,
  },
  {
    title: "the event of it, with how long it took",
    command: `${LAB} api GET '/v2/event/{a}?eventTypes=Data%20Plane%20Failover'`,
    // The bar is 3 s.
    expect: /Traffic goes by gw2 instead of gw1 in (\d{1,3}|[12]\d{3}) ms/,
    isEventual: true,
  },
  {
    title: "the cable is mended, and gateway 1 is back",
    command: `${LAB} heal gw1; until ${LAB} exec a holdfast health > .lab/health; do sleep 1; done; ${LAB} exec a holdfast gateways`,
    expect: /gw1\.lab\.example .* up /,
  },
  {
    title: "round trips and hops to both gateways, minute by minute; the first minute has to be over",
    command: `${LAB} api GET "/v2/node/{a}/plugin-logs/gateway-details?startDate=$(date -d '-1 hour' +%s)&endDate=$(date -d '+1 hour' +%s)"`,
    expect: /^(?=[^]*"node":"gw1")(?=[^]*"node":"gw2")[^]*"numRtt":[1-9]\d*,"hops":\[\{"hop":1,"ip":"192.168.1.1"/,
    isEventual: true,
    limitMs: 80_000,
  },
  {
    title: "a good change of C's network: proven over new connections, and confirmed",
    command: [
      `${LAB} api PUT '/node/{c}/config/network?confirm=30' '${GOOD}' > .lab/answer`,
      `until ${LAB} exec c ip -4 -brief address | grep 192.168.1.20; do sleep 1; done`,
      `until ${LAB} exec c holdfast network | grep -w nothing; do sleep 1; done`,
      // What is taken back below is tried again as soon as there is a session, so this is the time to look.
      `${LAB} exec c sh -c '${LOOK}' | sha256sum > .lab/before`,
    ].join("\n"),
    expect: /192\.168\.1\.20[^]*pending +nothing/,
  },
  {
    title:
      "a change that cuts C off, since it drops all that comes from the control plane: it comes back by itself, and says why",
    command: [
      `${LAB} api PUT '/node/{c}/config/network?confirm=30' '${WALL}' > .lab/answer`,
      `until ${LAB} exec c holdfast network | grep 'not reached'; do sleep 1; done`,
      `until ${LAB} exec c ping -c 1 -W 1 ${CONTROLLER} > .lab/answer; do sleep 1; done; ${LAB} exec c holdfast network`,
    ].join("\n"),
    expect: /not reached[^]*reverted[^]*control plane/,
  },
  {
    title: "what the control plane knows of it",
    command: `${LAB} api GET '/v2/event/{c}?eventTypes=Configuration%20Update%20Failure'`,
    expect: /A change of the network was reverted: [^"]*control plane/,
    isEventual: true,
  },
  {
    title: "kill C's agent in the middle of another such change: the guard brings the old network back, whole",
    command: [
      "cat .lab/before",
      `${LAB} api PUT '/node/{c}/config/network?confirm=30' '${WALL}' > .lab/answer`,
      `while ${LAB} exec c ping -c 1 -W 1 ${CONTROLLER} > .lab/answer; do sleep 1; done; ${LAB} kill agent c`,
      `until ${LAB} exec c ping -c 1 -W 1 ${CONTROLLER} > .lab/answer; do sleep 1; done; ${LAB} exec c sh -c '${LOOK}' | sha256sum`,
      `${LAB} api PUT '/node/{c}/config/network?confirm=30' '${GOOD}' > .lab/answer; ${LAB} start agent c`,
    ].join("\n"),
    expect: /^([0-9a-f]{64}) [^]*\1 /,
  },
  {
    title: "remove a node, and its sessions end",
    command: [
      `${LAB} exec client curl -s --limit-rate 1M -o .lab/large ${WEB}/large &`,
      `sleep 1; ${LAB} api DELETE '/node/{b}'; wait $! || echo "the download ended with status $?"`,
    ].join("\n"),
    expect: /the download ended with status (18|52|56)/,
  },
  {
    title: "B is no peer of A any more",
    command: `${LAB} exec a holdfast peers`,
    expect: /^(?![^]*\bb\.lab\.example)[^]*gw1/,
  },
];
