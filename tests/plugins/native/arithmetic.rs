//! A backend in Rust: chains of additions of float32 tensors of one shape, and a layer that makes it panic.

#[path = "INCLUDE/interposer/backend.rs"]
mod interposer;

use interposer::*;

struct Sums;

/// Adds the tensors that come in, so often as the part says.
struct Total {
    counts: Vec<f32>,
}

impl Executable for Total {
    fn execute(&self, run: &Run) -> Result<()> {
        let mut output = run.output(0)?;
        let out = output.data::<f32>()?;
        out.fill(0.0);
        for (index, count) in self.counts.iter().enumerate() {
            for (sum, x) in out.iter_mut().zip(run.input(index)?.data::<f32>()?) {
                *sum += count * x;
            }
        }
        Ok(())
    }

    fn flags(&self) -> u64 {
        raw::EXECUTABLE_CONCURRENT
    }
}

impl Backend for Sums {
    fn new() -> Sums {
        Sums
    }

    fn info(&self) -> Info {
        let gain = Property { name: "gain", doc: "a factor", value: Value::Float(1.0), scope: raw::SCOPE_MODEL };
        let safe = Property { name: "Safe", doc: "no pointers", value: Value::Bool(true), scope: 0 };
        Info { vendor: "Tests", version: "0.3", options: vec![gain], properties: vec![safe], ..Info::default() }
    }

    fn init(&self, host: Host, _options: Attributes) -> Result<()> {
        host.log(raw::LOG_WARNING, &format!("{} threads or more", host.threads().min(1)));
        Ok(())
    }

    fn support(&self, layer: &Layer, _options: Attributes) -> Verdict {
        let out = layer.output(0);
        let fits = |one: Option<TensorInfo>| one.map_or(false, |info| info.shape() == out.shape() && !info.is_constant());
        if layer.type_name() != "Addition" {
            return Verdict::no(format!("only Addition, not {}", layer.type_name()), raw::REASON_LAYER_TYPE);
        }
        if out.dtype() != raw::DTYPE_FLOAT32 || !fits(layer.input(0)) || !fits(layer.input(1)) {
            return Verdict::no("not two float32 tensors of one shape", raw::REASON_SHAPE);
        }
        Verdict::yes()
    }

    fn compile(&self, graph: Graph, options: Attributes) -> Result<Box<dyn Executable>> {
        let inputs = graph.inputs();
        let mut tensors: Vec<Vec<f32>> = vec![vec![0.0; inputs.len()]; graph.tensor_count()];
        for (position, &index) in inputs.iter().enumerate() {
            tensors[index as usize][position] = 1.0;
        }
        let gain = options.number("gain").unwrap_or(1.0) as f32;
        for layer in graph.layers() {
            if layer.name() == "explode" {
                panic!("{} went off", layer.name());
            }
            let (a, b) = (layer.inputs()[0] as usize, layer.inputs()[1] as usize);
            let sum = tensors[a].iter().zip(&tensors[b]).map(|(a, b)| gain * (a + b)).collect();
            tensors[layer.outputs()[0] as usize] = sum;
        }
        if graph.outputs().len() != 1 {
            return Err(graph.layer(0).unsupported("only one sum at a time"));
        }
        Ok(Box::new(Total { counts: tensors[graph.outputs()[0] as usize].clone() }))
    }
}

export_backend!("Sums", Sums);
