"""A Space on Hugging Face: a chat that stops when it should."""

import gradio as gr

import bourn

demo = gr.ChatInterface(
    bourn.gradio.chat(),
    additional_inputs=[
        gr.Textbox("You are a helpful assistant.", label="System message"),
        gr.Slider(1, 2048, 512, step=1, label="Max new tokens"),
        gr.Slider(0, 2, 0.7, label="Temperature"),
        gr.Slider(0.05, 1, 0.95, label="Top-p"),
    ],
)

if __name__ == "__main__":
    demo.launch()
