import { readFileSync, mkdtempSync } from "node:fs";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { addNodes } from "/root/w/mg/scripts/benches/fleet.ts";
const mode=process.argv[2],n=Number(process.argv[3]);
const base=mkdtempSync("/dev/shm/api-"),data=base+"/c",port=18555;
const run=(x:string[]=[])=>spawn(process.execPath,["--disable-warning=ExperimentalWarning",...x,"/root/w/mg/scripts/x.ts".replace("scripts/x.ts","dist/holdfast.mjs"),"controller","--listen",`127.0.0.1:${port}`,"--data",data],{stdio:["ignore","ignore","inherit"],cwd:base});
const up=async()=>{for(;;){try{if((await fetch(`http://127.0.0.1:${port}/healthz`)).ok)return}catch{}await new Promise(r=>setTimeout(r,50))}};
let c=run();await up();c.kill();await once(c,"exit");
const f=await addNodes(data+"/controller.db",10000);
c=run(["--cpu-prof",`--cpu-prof-dir=${base}`]);let t=performance.now();await up();console.log("start",performance.now()-t);
const key=readFileSync(data+"/admin.key","utf8").trim();
t=performance.now();
for(let i=0;i<n;i++){
 const r=mode==="list"?await fetch(`http://127.0.0.1:${port}/node?projection[]=uid&projection[]=name&projection[]=online`,{headers:{authorization:key}}):await fetch(`http://127.0.0.1:${port}/v2/node/${f[i]!.uid}/config/connectors`,{method:"POST",headers:{authorization:key,"content-type":"application/json"},body:JSON.stringify({node:"local",service:"web",protocol:"tcp",port:8080})});
 const b=await r.text(); if(i===0)console.log(r.status,b.slice(0,700),b.length);
}
console.log((performance.now()-t)/n,"ms each");
c.kill();await once(c,"exit");console.log(base);
