// A GGUF file read by llama.cpp: node llama_cpp.mjs ENGINE FILE IDS TEXTS, the last two as JSON. Prints the greedy
// continuation of the ids, the tokens of each text (markup as tokens), its chat template and its special tokens.
const [engine, modelPath, ids, texts] = process.argv.slice(2);
const {getLlama} = await import(engine);
const llama = await getLlama({gpu: false, build: "never", progressLogs: false, logLevel: "error"});
const model = await llama.loadModel({modelPath});
const sequence = (await model.createContext({contextSize: 128})).getSequence();
const written = [];
for await (const token of sequence.evaluate(JSON.parse(ids), {temperature: 0, yieldEogToken: true})) {
  written.push(token);
  if (written.length === 16) break;
}
console.log(JSON.stringify({
  written,
  tokens: JSON.parse(texts).map((text) => model.tokenize(text, true)),
  template: model.fileInfo.metadata?.tokenizer?.chat_template ?? null,
  bos: model.tokens.bos,
  eos: model.tokens.eos,
  hasBosBefore: model.tokens.shouldPrependBosToken,
}));
process.exit(0);
