import { openLlamaBackend } from "./src/open-backend.ts";
import { Batch } from "@kvasir/engine";
const arg = (n: string, d: string) => {
  const i = process.argv.indexOf("--" + n);
  return i < 0 ? d : process.argv[i + 1]!;
};
const ub = Number(arg("ub", "512")),
  poll = Number(arg("poll", "0")),
  sync = arg("sync", "auto"),
  reps = Number(arg("reps", "5")),
  threads = Number(arg("threads", "2"));
const lanes = Number(arg("lanes", "4"));
const t0 = performance.now();
const b = await openLlamaBackend({
  modelPath: "/tmp/k/SmolLM2-135M-Instruct.Q4_1.gguf",
  laneCount: lanes,
  laneTokens: 1024,
  batchTokens: ub,
  threads,
  threadPoll: poll,
  ...(sync === "auto" ? {} : { synchronousRows: Number(sync) }),
});
const open = performance.now() - t0;
const batch = new Batch(ub);
async function pp(lane: number, n: number) {
  for (let s = 0; s < n; s += ub) {
    batch.clear();
    for (let i = s; i < Math.min(n, s + ub); i++) batch.push(lane, i, (i * 7919) % 49152, i === n - 1);
    await b.decode(batch);
  }
}
const pps: number[] = [],
  tgs: number[] = [],
  tg4: number[] = [];
for (let r = 0; r < reps; r++) {
  b.truncate(0, 0);
  let t = performance.now();
  await pp(0, 512);
  pps.push((512 / (performance.now() - t)) * 1e3);
  b.truncate(0, 0);
  t = performance.now();
  for (let i = 0; i < 64; i++) {
    batch.clear();
    batch.push(0, i, (i * 31) % 49152, true);
    const r = b.decode(batch);
    if (r instanceof Promise) await r;
    b.logitsOf(0);
  }
  tgs.push((64 / (performance.now() - t)) * 1e3);
  if (lanes >= 4) {
    for (let l = 0; l < 4; l++) b.truncate(l, 0);
    t = performance.now();
    for (let i = 0; i < 32; i++) {
      batch.clear();
      for (let l = 0; l < 4; l++) batch.push(l, i, (i * 31 + l) % 49152, true);
      const r = b.decode(batch);
      if (r instanceof Promise) await r;
      for (let l = 0; l < 4; l++) b.logitsOf(l);
    }
    tg4.push((128 / (performance.now() - t)) * 1e3);
  }
}
const f = (x: number[]) => {
  const s = [...x].sort((a, b) => a - b);
  return `${s[s.length >> 1]!.toFixed(1)} (best ${s.at(-1)!.toFixed(1)})`;
};
console.log(
  `ub ${ub} poll ${poll} sync ${sync} thr ${threads}: open ${open.toFixed(0)} ms, pp512 ${f(pps)}, tg64 ${f(tgs)}, tg B=4 ${lanes >= 4 ? f(tg4) : "-"}`,
);
await b.close();
