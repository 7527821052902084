// A plain Node script: no package, no Surefoot. Without KEY it charges twice when it is killed in the gap.
const key = process.env.KEY ? { "idempotency-key": process.env.KEY } : {};
const post = async (url, body, headers = {}) => {
  const answer = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: "Bearer any", ...headers },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  return answer.json();
};
const messages = [{ role: "user", content: "pay order 81" }];
const reply = await post(`${process.env.OPENAI_BASE_URL}/chat/completions`, { model: "any", messages });
await post(`${process.env.SHOP_URL}/charges`, { order: "81", cents: 1999 }, key);
console.log("order 81 is paid:", reply.choices[0].message.content);
